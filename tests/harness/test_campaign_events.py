"""A campaign's events say what its outcome says, whatever happened on the way."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import TypeVar

import pytest

from harness import campaign_events, corpus, events, files, workers
from harness.backends import active
from harness.campaign_events import CampaignEvents
from harness.errors import CannotRunHere
from harness.events import Counted, Ended, EventLog, Failed, Started, Where
from harness.plan import Outcome, Plan
from harness.target import Target
from tests.harness.commands import CASE, PLANTED, fuzz

PLAN = Plan(seed=7, cases=4)
SAVED = corpus.SavedCase(case=CASE, why="fails: outputs")

_Event = TypeVar("_Event", bound=events.Event)


def of(kind: type[_Event], folder: Path) -> list[_Event]:
    return [event for log in events.load(folder) for event in log if isinstance(event, kind)]


def test_a_campaign_leaves_what_its_report_says(tmp_path: Path) -> None:
    report, folder = tmp_path / "report.json", tmp_path / "events"
    assert fuzz(tmp_path, "--events", folder, "--json", report, *PLANTED, cases=4).exit_code == 1
    said = json.loads(report.read_text())
    *_, total = of(Counted, folder)
    assert total.cases == said["cases"] == 4
    assert total.features == {name: count for name, count in said["features"].items() if count}
    assert total.oracles == {name: count for name, count in said["oracles"].items() if count}
    assert total.violations == said["violations"]
    assert total.time - total.since == pytest.approx(said["seconds"], abs=0.01)
    (started,) = of(Started, folder)
    assert (started.run, started.domains, started.seed, started.cases) == ("fuzz", ("contract",), 5, 4)
    assert [event.where for event in of(Where, folder)] == [said["where"]]
    assert [(event.interrupted, event.fault) for event in of(Ended, folder)] == [(False, None)]
    last = {event.kind: event for event in of(Failed, folder)}
    assert {kind: event.path for kind, event in last.items()} == {
        failure["kind"]: failure["saved"] for failure in said["failures"]
    }
    assert all(f"replay {event.path}" in str(event.command) for event in last.values())


def test_a_chunk_that_is_judged_again_after_a_crash_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Each look is recorded, and each case is told at once: also those that are then taken back.
    monkeypatch.setattr(campaign_events, "_SECONDS_BETWEEN_COUNTS", -1.0)
    monkeypatch.setattr(campaign_events, "_SHARE_BETWEEN_COUNTS", -1.0)
    monkeypatch.setattr(workers, "smallest_of_each_kind", lambda *_: ())
    target = Target(backend=active().name, checkpointer="tests.harness.planted:is_killed_once")
    plan = Plan(target=target, seed=7, cases=12, workers=1)
    recorded = CampaignEvents(EventLog(tmp_path), plan, 12)
    outcome = workers.run(plan, recorded.follow)
    recorded.conclude(outcome, {}, dict.fromkeys(outcome.crashed), {})
    *_, total = of(Counted, tmp_path)
    assert total.cases == outcome.tally.cases == 11
    assert total.features == outcome.tally.features
    # When it was seen, and when it could not be saved.
    assert [event.kind for event in of(Failed, tmp_path)] == ["crash: SIGKILL, or memory ran out"] * 2


def test_what_is_taken_back_is_gone_from_the_next_count(tmp_path: Path) -> None:
    recorded = CampaignEvents(EventLog(tmp_path), PLAN, 4)
    outcome = Outcome(where={"backend": "cpu"})
    for cases, seconds in ((3, 6.0), (1, 12.0), (2, 13.0)):
        outcome.tally.cases, outcome.tally.features = cases, Counter(chain=cases)
        outcome.tally.seconds = seconds
        recorded.follow(outcome)
    assert [event.cases for event in of(Counted, tmp_path)] == [3, 1]
    recorded.conclude(outcome, {}, {}, {})
    assert [event.features for event in of(Counted, tmp_path)] == [{"chain": 3}, {"chain": 1}, {"chain": 2}]


def test_a_failure_is_recorded_when_it_is_seen_and_again_once_it_is_saved(tmp_path: Path) -> None:
    recorded = CampaignEvents(EventLog(tmp_path), PLAN, 4)
    outcome = Outcome(where={"backend": "cpu"}, found={"outputs": SAVED})
    recorded.follow(outcome)
    recorded.follow(outcome)
    (seen,) = of(Failed, tmp_path)
    assert seen.path is None
    assert str(seen.command).endswith(f"replay {CASE.fingerprint}.json")
    recorded.conclude(outcome, {"outputs": Path("corpus/a.json")}, {}, {})
    assert [event.path for event in of(Failed, tmp_path)] == [None, "corpus/a.json"]


def test_what_others_had_found_is_told_apart(tmp_path: Path) -> None:
    recorded = CampaignEvents(EventLog(tmp_path), PLAN, 4)
    outcome = Outcome()
    outcome.again.fail("outputs", SAVED)
    recorded.conclude(outcome, {}, {}, {"outputs": None})
    assert [event.shared for event in of(Failed, tmp_path)] == [True]


def test_an_error_that_ends_a_campaign_is_recorded_with_its_exit_code(tmp_path: Path) -> None:
    recorded = CampaignEvents(EventLog(tmp_path), PLAN, 4)
    recorded.conclude(Outcome(fault=CannotRunHere("no such GPU")), {}, {}, {})
    assert [(event.fault, event.fault_code) for event in of(Ended, tmp_path)] == [("no such GPU", 125)]


def test_counts_become_rarer_as_time_passes(tmp_path: Path) -> None:
    recorded = CampaignEvents(EventLog(tmp_path), PLAN, None)
    outcome = Outcome(where={"backend": "cpu"})
    for second in range(24 * 60 * 60):
        outcome.tally.seconds = float(second)
        recorded.follow(outcome)
    assert 500 < len(of(Counted, tmp_path)) < 800


def test_a_disk_that_fills_up_costs_the_events_and_not_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(path: Path, data: bytes) -> None:
        if data:
            raise CannotRunHere(f"{path}: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(files, "append", fill_up)
    result = fuzz(tmp_path, "--events", tmp_path / "events", *PLANTED)
    assert result.exit_code == 125
    assert "No space left on device" in result.stderr.splitlines()[-1]
    (path,) = (tmp_path / "corpus").iterdir()
    assert f"saved as {path}" in result.stdout


def test_a_folder_that_cannot_be_ends_a_campaign_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = fuzz(tmp_path, "--events", tmp_path / "file")
    assert result.exit_code == 2
    assert not (tmp_path / "corpus").exists()
