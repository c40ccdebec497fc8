"""What a release lacks is found by trying, named, and tried once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformer_engine.common.recipe as te_recipe
import transformer_engine.pytorch as te

from harness import backends
from harness import case as c
from harness.errors import CannotRunHere, ReleaseLacks
from harness.support import Support

if TYPE_CHECKING:
    from harness.session import Session

ONCE = (c.Forward(), c.Backward())


@pytest.fixture
def support(te_session: Session) -> Support:
    return Support(te_session.backend.device, te_session.probe)


def refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise NotImplementedError("not yet")


def a_case(body: c.Node, recipe: c.Recipe | None = None) -> c.Case:
    return c.Case(graph=c.Region(body), schedule=ONCE, recipe=recipe or c.DelayedScaling())


def test_a_recipe_without_a_name_is_lacking(support: Support, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(te_recipe, "Float8CurrentScaling", raising=False)
    with pytest.raises(ReleaseLacks) as caught:
        support.check(a_case(c.Linear(), c.CurrentScaling()))
    assert caught.value.what == "the recipe Float8CurrentScaling"


def test_what_te_refuses_when_it_runs_is_lacking(support: Support, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(te.GroupedLinear, "forward", refuse)
    with pytest.raises(ReleaseLacks, match="lacks GroupedLinear under DelayedScaling: use a newer") as caught:
        support.check(a_case(c.Chain((c.Linear(), c.GroupedLinear()))))
    assert isinstance(caught.value, CannotRunHere)
    assert backends.te_version() in str(caught.value)
    support.check(a_case(c.Linear()))


def test_an_activation_is_named(support: Support, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(te.LayerNormMLP, "forward", refuse)
    with pytest.raises(ReleaseLacks) as caught:
        support.check(a_case(c.LayerNormMLP(activation="relu"), c.HighPrecision()))
    assert caught.value.what == "LayerNormMLP with activation relu under HighPrecision"


def test_any_other_error_is_no_lack_and_left_to_the_runs(
    support: Support, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(te.Linear, "forward", fail)
    support.check(c.Case(graph=c.Linear(), schedule=()))


def test_each_need_is_tried_once(support: Support, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Tensor] = []
    forward = te.Linear.forward

    def counting(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        calls.append(x)
        return forward(self, x, *args, **kwargs)

    monkeypatch.setattr(te.Linear, "forward", counting)
    for _ in range(2):
        support.check(a_case(c.Linear()))
        support.check(a_case(c.Linear(bias=False), c.HighPrecision()))
    assert len(calls) == 2


def test_a_trial_leaves_nothing_behind(te_session: Session, support: Support) -> None:
    support.check(a_case(c.Linear()))
    assert te_session.probe.snapshots() == 0
    assert dict(te_session.probe.flags())["autocast depth"] == "0"


def test_a_session_refuses_a_case_before_it_runs(
    te_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Support):
        def check(self, case: c.Case) -> None:
            raise ReleaseLacks("2.1.0", f"all {len(c.modules(case))} modules")

    monkeypatch.setattr(te_session, "_support", Refusing(te_session.backend.device, te_session.probe))
    with pytest.raises(ReleaseLacks, match="all 1 modules"):
        te_session.judge(a_case(c.Linear()))
