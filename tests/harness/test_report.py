"""Reports name all that a person needs, and print nothing that a stranger's file could abuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import case as c
from harness import report
from harness.corpus import SavedCase, Seen, from_failure
from harness.failure import Failure
from harness.features import CATALOGUE
from harness.plan import Outcome, Plan
from harness.record import Disagreement
from harness.sentence import describe
from harness.tally import Tally
from harness.target import Target
from harness.trace import RunError
from harness.verdict import Verdict
from harness.violations import ORACLES, Violation

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
VIOLATION = Violation(
    oracle="pairing", message="popped another", iteration=2, region=1, module="body", queues={"body": 3}
)
FAILURE = Failure("pairing", CASE, Verdict(fingerprint=CASE.fingerprint, violations=(VIOLATION,)))
COMMAND = "te-harness replay corpus/x.json --te installed"
PLAN = Plan(seed=42, cases=3, target=Target(backend="cpu"))


def outcome() -> Outcome:
    tally = Tally()
    tally.count(CASE, FAILURE.verdict)
    return Outcome(tally=tally, found={"pairing": from_failure(FAILURE)}, reason="asked for")


@pytest.mark.parametrize("failure", [FAILURE, from_failure(FAILURE)])
def test_a_failure_comes_with_all_that_a_person_needs(failure: Failure | SavedCase) -> None:
    text = report.failure_text(failure, Path("corpus/x.json"), COMMAND)
    assert describe(CASE) in text
    assert '"type": "Region"' in text
    assert "pairing [iteration 2, region 1, body]: popped another; FIFO lengths: body: 3" in text
    assert "saved as corpus/x.json" in text
    assert f"replay with: {COMMAND}" in text


def test_a_failure_that_could_not_be_saved_says_so() -> None:
    text = report.failure_text(FAILURE, None)
    assert "not saved" in text
    assert "replay with" not in text


def test_a_summary_counts_what_was_drawn_and_what_was_not(capsys: pytest.CaptureFixture[str]) -> None:
    report.summary(PLAN, outcome())
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "module: Linear 1 100.0%" in lines
    assert "module: TransformerLayer 0 0.0%" in lines
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in (*CATALOGUE, *ORACLES))
    assert any("seed 42" in line for line in lines)
    assert lines[-1] == "violations pairing 1"


def test_a_summary_says_that_all_held(capsys: pytest.CaptureFixture[str]) -> None:
    report.summary(PLAN, Outcome(tally=Tally(cases=3)))
    assert capsys.readouterr().out.splitlines()[-1].split() == ["violations", "none"]


def test_the_json_of_a_campaign_holds_the_whole_report() -> None:
    data = json.loads(report.campaign_json(PLAN, outcome(), {"pairing": Path("corpus/x.json")}, {}, {}))
    assert data["plan"]["seed"] == 42
    assert set(data["features"]) == set(CATALOGUE)
    assert set(data["oracles"]) == set(ORACLES)
    (failure,) = data["failures"]
    assert failure["kind"] == "pairing"
    assert failure["saved"] == "corpus/x.json"
    assert failure["case"]["graph"]["type"] == "Autocast"
    assert failure["seen"]["violations"][0]["module"] == "body"


def test_a_stranger_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\nheld"
    violation = Violation(oracle="outputs", message=evil, iteration=0, module=evil)
    saved = SavedCase(case=CASE, why=evil, where={evil: evil}, seen=Seen(violations=(violation,)))
    verdict = Verdict(fingerprint=CASE.fingerprint, violations=(violation,))
    lines = [
        *report.replay_lines(saved, verdict, "reproduced"),
        *report.failure_text(saved, None).splitlines(),
    ]
    lines += report.disagreement_lines(Disagreement(CASE, (evil,)))
    assert all(line.isprintable() for line in lines)
    assert "held" not in lines


def test_a_held_case_takes_one_line() -> None:
    verdict = Verdict(fingerprint=CASE.fingerprint, violations=())
    lines = report.replay_lines(SavedCase(case=CASE), verdict, "held")
    assert lines == [f"held {CASE.fingerprint} {describe(CASE)}"]


def test_a_case_that_raises_in_both_runs_is_not_passed_off_as_good() -> None:
    error = RunError(1, "Backward", 0, "RuntimeError", "boom")
    verdict = Verdict(fingerprint=CASE.fingerprint, violations=(), direct_error=error)
    _, told = report.replay_lines(from_failure(FAILURE), verdict, "held")
    assert told == "  both runs raised RuntimeError in step 1: little was compared"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with report.Progress(10) as progress:
        progress(Tally(cases=1, seconds=1.0))
        monkeypatch.setattr(report, "_SECONDS_BETWEEN_LINES", -1.0)
        progress(Tally(cases=4, seconds=2.0))
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["4 of 10 cases, 2.0 cases per second, violations: none"]
    assert captured.out == ""
