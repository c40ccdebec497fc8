"""A session judges: what is noise, what a checkpointer is, and when it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformer_engine.pytorch as te

from harness import case as c
from harness.errors import InvalidInput
from harness.session import Session, load_checkpointer

if TYPE_CHECKING:
    from pathlib import Path

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()) * 2)


def shifts_and_does_not_recompute(function: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("use_reentrant", None)
    return function(*args, **kwargs) + 1.0


def test_faults_beside_one_another_are_not_excused_as_noise(te_session: Session) -> None:
    verdict = Session(te_session.backend, te_session.te_mode, shifts_and_does_not_recompute).judge(CASE)

    assert {"outputs", "pairing", "recompute count"} <= {v.oracle for v in verdict.violations}
    assert not any(violation.noise for violation in verdict.violations)


def test_what_differs_between_two_direct_runs_is_called_noise(
    te_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch.nn.Linear.forward
    calls = iter(range(1000))

    def noisy(self: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        return original(self, x) + next(calls)

    monkeypatch.setattr(torch.nn.Linear, "forward", noisy)
    case = c.Case(graph=c.TorchLinear(), schedule=(c.Forward(), c.Backward()))
    violations = te_session.judge(case).violations

    assert [violation.oracle for violation in violations] == ["outputs"]
    assert violations[0].noise


def test_what_a_checkpointer_does_to_its_input_reaches_no_other_run(te_session: Session) -> None:
    def spoils(function: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            x.zero_()
        return te.checkpoint(function, x, *args, **kwargs)

    verdict = Session(te_session.backend, te_session.te_mode, spoils).judge(CASE)
    assert verdict.violations
    assert not any(violation.noise for violation in verdict.violations)


def test_a_mode_or_a_parameter_changed_behind_the_back_is_a_change_of_state(te_session: Session) -> None:
    def flips(function: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        out = te.checkpoint(function, *args, **kwargs)
        function.eval()
        return out

    verdict = Session(te_session.backend, te_session.te_mode, flips).judge(CASE)
    assert {violation.oracle for violation in verdict.violations} == {"global state"}


def test_a_context_that_is_not_entered_is_missed(te_session: Session) -> None:
    def forgets(function: Any, *args: Any, context_fn: Any = None, **kwargs: Any) -> Any:  # noqa: ARG001
        return te.checkpoint(function, *args, **kwargs)

    region = c.Region(c.Linear(), contexts=c.Contexts("null", "enable_grad"))
    case = c.Case(graph=c.Autocast(region), schedule=CASE.schedule)
    verdict = Session(te_session.backend, te_session.te_mode, forgets).judge(case)

    assert te_session.judge(case).held
    assert {violation.oracle for violation in verdict.violations} == {"recompute count"}


def test_a_checkpointer_that_holds_te_checkpoint_by_name_gets_the_corrected_one(
    te_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "held_by_name.py").write_text("from transformer_engine.pytorch import checkpoint\n")
    monkeypatch.syspath_prepend(tmp_path)
    session = Session(te_session.backend, te_session.te_mode, "held_by_name:checkpoint")

    assert session.judge(CASE).held


@pytest.mark.parametrize(
    "content", ["raise ValueError('x')", "import sys; sys.exit(0)", "def f(:", "f = 3", ""]
)
def test_what_cannot_be_loaded_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    name = f"unusable_{abs(hash(content))}"
    (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput) as told:
        load_checkpointer(f"{name}:f")
    assert "\n" not in str(told.value)
