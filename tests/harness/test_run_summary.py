"""What the events of all processes of a run come to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.errors import InvalidInput
from harness.events import Ended, Event, Failed, Started, Where
from harness.run_summary import Verdict, covered, summarise
from harness.violations import Violation
from tests.harness.commands import CASE
from tests.harness.recorded import ENDED, LARGER, STARTED, WHERE, counts, failure, record, whole


def test_the_last_count_of_each_process_is_its_whole(tmp_path: Path) -> None:
    record(tmp_path, counts(cases=3, features={"chain": 3}), counts(cases=5, features={"chain": 4}))
    record(tmp_path, counts(cases=7, features={"sum": 1}, lacking={"silu": 2}, known={"nested-regions": 1}))
    tally = summarise(tmp_path).tally
    assert tally.cases == 12
    assert tally.features == {"chain": 4, "sum": 1}
    assert (tally.lacking, tally.known) == ({"silu": 2}, {"nested-regions": 1})


def test_processes_that_judge_side_by_side_share_the_time(tmp_path: Path) -> None:
    record(tmp_path, counts(since=100.0, time=110.0, cases=30), counts("frontier", since=110.0, time=120.0))
    record(tmp_path, counts(since=102.0, time=112.0, cases=30))
    summary = summarise(tmp_path)
    assert (summary.drawn["contract"].seconds, summary.drawn["contract"].speed) == (12.0, 5.0)
    assert summary.drawn["frontier"].speed == 1.0
    assert (summary.seconds, summary.speed) == (20.0, 3.5)


def test_the_time_between_two_runs_is_nobodys() -> None:
    assert covered([(1000.0, 1010.0), (90.0, 100.0), (1005.0, 1006.0)]) == 20.0
    assert covered([]) == 0.0


def test_of_each_kind_the_smallest_case_is_told_and_where_it_is_saved(tmp_path: Path) -> None:
    record(tmp_path, failure(case=LARGER), failure(path=None), failure(), failure(path=None))
    record(tmp_path, failure(case=LARGER), failure("pairing", case=LARGER))
    summary = summarise(tmp_path)
    assert [(finding.kind, finding.fingerprint) for finding in summary.new] == [
        ("FIFO drained", CASE.fingerprint),
        ("pairing", LARGER.fingerprint),
    ]
    assert summary.new[0].path == "corpus/a.json"


def test_the_same_kind_under_another_release_is_another_finding(tmp_path: Path) -> None:
    record(tmp_path, failure(), failure(case=LARGER, transformer_engine="2.19.0"))
    assert len(summarise(tmp_path).new) == 2


def test_crashes_and_what_others_had_found_are_told_apart(tmp_path: Path) -> None:
    theirs = msgspec.structs.replace(failure(), shared=True)
    record(tmp_path, theirs, failure("crash: SIGSEGV", ending="SIGSEGV"), failure())
    # As it was drawn, and made smaller: one kind.
    record(tmp_path, failure("crash: SIGSEGV (made smaller)", case=LARGER, ending="SIGSEGV"))
    summary = summarise(tmp_path)
    assert [len(found) for found in (summary.new, summary.crashes, summary.shared)] == [1, 1, 1]
    assert [finding.crash for finding in summary.findings] == [False, True, False]


def test_a_finding_comes_with_a_script(tmp_path: Path) -> None:
    (finding,) = summarise(record(tmp_path, failure())).findings
    assert finding.script is not None
    assert "te.checkpoint(" in finding.script


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (failure(te_mode="mutant:named:guard-reverted"), "without the fault planted by mutant:"),
        (failure(checkpointer="mine:checkpoint"), "mine:checkpoint was tested"),
        (failure(violations=[Violation(oracle="steady memory", message="m", iteration=1)]), "harness"),
    ],
)
def test_where_there_is_no_script_it_is_said_why(tmp_path: Path, found: Failed, why: str) -> None:
    (finding,) = summarise(record(tmp_path, found)).findings
    assert finding.script is None
    assert why in finding.why_no_script


def test_a_run_that_tells_of_no_end_is_unfinished(tmp_path: Path) -> None:
    record(tmp_path / "whole", STARTED, ENDED)
    record(tmp_path / "killed", STARTED)
    # A process of pytest that only judges tells of neither.
    record(tmp_path / "worker", Where(where=WHERE, reason=""), counts())
    assert summarise(tmp_path / "whole").unfinished == 0
    assert summarise(tmp_path).unfinished == 1
    assert not summarise(tmp_path).interrupted


def test_runs_are_told_in_their_order_and_places_once(tmp_path: Path) -> None:
    late = Started(time=2000.0, run="pytest", seed=8, workers=4)
    for started in (late, STARTED):
        record(tmp_path, started, Where(where=WHERE, reason="asked for"))
    summary = summarise(tmp_path)
    assert summary.started == [STARTED, late]
    assert (summary.where, summary.reasons) == ([WHERE], ["asked for"])


@pytest.mark.parametrize(
    ("happened", "verdict"),
    [
        ([counts()], "held"),
        ([counts(known={"nested-regions": 3})], "held"),
        ([counts(), failure()], "violated"),
        ([counts(), failure("crash: SIGSEGV", ending="SIGSEGV")], "violated"),
        ([counts(violations={"outputs": 1})], "violated"),
        ([STARTED], "nothing judged"),
        ([counts(cases=0, lacking={"silu": 9})], "nothing judged"),
        ([counts(), failure(), Ended(time=1.0, fault="planted")], "fault"),
        ([counts(), failure(), Ended(time=1.0, fault="no such GPU", fault_code=125)], "violated"),
    ],
)
def test_the_verdict_is_the_worst_that_happened(
    tmp_path: Path, happened: list[Event], verdict: Verdict
) -> None:
    assert summarise(record(tmp_path, *happened)).verdict == verdict


def test_a_folder_without_events_has_no_summary(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        summarise(tmp_path)
    assert summarise(whole(tmp_path / "run")).verdict == "held"
