"""``te-harness minimize`` makes a case smaller that is violated, and keeps the way in which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from harness import backends, corpus
from harness import case as c
from harness.cli import main
from harness.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from harness.verdict import Verdict

ONE = c.Autocast(c.Region(c.Linear()))
HOLDS = c.Case(graph=ONE, schedule=(c.Forward(), c.Backward()))
BODY = c.Chain((c.LayerNormMLP(), c.Linear()))
ABANDONED = c.Case(
    graph=c.Chain((c.TorchLinear(), c.Autocast(c.Residual(c.Region(BODY))))),
    schedule=(
        c.Evaluate(), c.Forward(64.0), c.Abandon(), c.SetMode(1, training=False), c.Forward(8.0),
        c.Backward(2.0), c.OptimizerStep(), c.Forward(), c.Backward(),
    ),
    recipe=c.DelayedScaling(history=16),
    seed=7,
)  # fmt: skip
SMALLEST = c.Case(graph=c.Region(c.Linear()), schedule=(c.Forward(), c.Abandon()))
"""Even with FP8 off, an abandoned forward leaves the flag of its region's first module."""


def minimize(folder: Path, case: c.Case, *arguments: object) -> Result:
    """Save a case and minimize it, on the backend that is active in this process."""
    path = folder / "case.json"
    path.write_bytes(c.encode(case))
    options = ("--corpus", folder / "corpus", "--backend", backends.active().name)
    words = ["minimize", path, *arguments, *options]
    return CliRunner().invoke(main, [str(word) for word in words])


def saved(folder: Path) -> corpus.SavedCase:
    (path,) = (folder / "corpus").glob("*.json")
    return corpus.load(path)


def test_a_violated_case_becomes_the_smallest_of_its_kind(tmp_path: Path) -> None:
    result = minimize(tmp_path, ABANDONED)
    assert result.exit_code == 1
    assert result.stdout.startswith("FIFO drained\n")
    assert "replay with: " in result.stdout
    found = saved(tmp_path)
    assert found.case == SMALLEST
    assert {violation.oracle for violation in found.seen.violations} == {"FIFO drained"}


def test_a_case_that_holds_is_left_alone(tmp_path: Path) -> None:
    result = minimize(tmp_path, HOLDS)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"held {HOLDS.fingerprint}")
    assert not (tmp_path / "corpus").exists()


def test_the_smallest_case_of_a_fault_within_the_contract_does_not_leave_it(tmp_path: Path) -> None:
    recomputes_nothing = ("--checkpointer", "tests.harness.planted:no_recompute")
    case = c.Case(graph=ABANDONED.graph, schedule=(c.Evaluate(), c.Forward(), c.Backward()), seed=7)
    result = minimize(tmp_path, case, *recomputes_nothing)
    assert result.exit_code == 1
    assert saved(tmp_path).case == HOLDS


def test_no_more_cases_are_tried_than_asked_for(tmp_path: Path) -> None:
    result = minimize(tmp_path, ABANDONED, "--cases", 3)
    assert result.exit_code == 1
    assert "the smallest of 4 cases" in result.stdout


def test_interrupted_it_saves_the_smallest_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, judged = Session.judge, list[c.Case]()

    def interrupted(session: Session, case: c.Case) -> Verdict:
        judged.append(case)
        if len(judged) > 5:
            raise KeyboardInterrupt
        return judge(session, case)

    monkeypatch.setattr(Session, "judge", interrupted)
    result = minimize(tmp_path, ABANDONED)
    assert result.exit_code == 130
    assert len(c.encode(saved(tmp_path).case)) < len(c.encode(ABANDONED))
