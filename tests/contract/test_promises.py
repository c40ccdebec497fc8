"""What the corrected checkpoint promises beside equality with direct execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformer_engine.pytorch as te

from harness import backends
from harness import case as c
from harness.api import autocast
from harness.build import make_recipe
from harness.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

ONCE = (c.Forward(), c.Backward())
REENTRANT = pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])


def linear() -> torch.nn.Module:
    module: torch.nn.Module = te.Linear(32, 32, device=backends.active().device)
    return module


def checkpoint(function: Callable[..., torch.Tensor], use_reentrant: bool) -> torch.Tensor:
    x = torch.ones(16, 32, device=backends.active().device, requires_grad=True)
    with autocast(True, make_recipe(c.DelayedScaling())):
        out: torch.Tensor = te.checkpoint(function, x, use_reentrant=use_reentrant)
    return out


def test_a_reentrant_region_none_of_whose_inputs_needs_a_gradient_pushes_nothing(te_session: Session) -> None:
    graph = c.Autocast(c.Chain((c.Region(c.Linear()), c.Linear())))
    _, checkpointed = te_session.run_both(c.Case(graph=graph, schedule=ONCE, input_requires_grad=False))

    assert checkpointed.error is None
    assert [event.module for event in checkpointed.events if event.module] == ["region 0"]
    assert not any(event.pushed for event in checkpointed.events)
    assert checkpointed.standstills[-1].queues == {}


@REENTRANT
def test_enable_grad_right_around_the_checkpoint_brings_recomputation_back(
    te_session: Session, use_reentrant: bool
) -> None:
    region = c.Region(c.Linear(), use_reentrant=use_reentrant)
    graph = c.Autocast(c.GradMode(c.GradMode(region, "enable_grad"), "no_grad"))
    verdict = te_session.judge(c.Case(graph=graph, schedule=ONCE))

    assert verdict.held, verdict.violations
    assert [event.phase for event in verdict.events if not event.module] == [1, 2]
    assert [len(event.pushed) - len(event.popped) for event in verdict.events if event.module] == [1, -1]


@REENTRANT
def test_of_two_pending_forwards_each_backward_pops_its_own_snapshot(
    te_session: Session, use_reentrant: bool
) -> None:
    schedule = (c.Forward(), c.Forward(100.0), c.Backward(), c.Backward())
    region = c.Region(c.Linear(), use_reentrant=use_reentrant)
    verdict = te_session.judge(c.Case(graph=c.Autocast(region), schedule=schedule))

    assert verdict.held, verdict.violations
    modules = [event for event in verdict.events if event.module]
    assert [(event.iteration, event.pushed, event.popped) for event in modules] == [
        (0, (0,), ()), (1, (1,), ()), (0, (), (0,)), (1, (), (1,)),
    ]  # fmt: skip


def test_a_module_that_recomputes_itself_equals_one_that_does_not(te_session: Session) -> None:
    graph = c.Autocast(c.Chain((c.Region(c.Linear()), c.LayerNormMLP(recompute=True))))
    verdict = te_session.judge(c.Case(graph=graph, schedule=(*ONCE, c.Forward(100.0), c.Backward())))

    assert verdict.held, verdict.violations
    assert "FIFO drained" in verdict.evaluated


@REENTRANT
def test_a_callable_without_te_modules_goes_to_pytorchs_checkpoint(
    te_session: Session, use_reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[bool] = []
    original = torch.utils.checkpoint.checkpoint

    def spy(*args: Any, **kwargs: Any) -> Any:
        called.append(kwargs["use_reentrant"])
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", spy)
    graph = c.Autocast(c.Region(c.TorchLinear(), use_reentrant=use_reentrant))
    verdict = te_session.judge(c.Case(graph=graph, schedule=ONCE))

    assert verdict.held, verdict.violations
    assert called == [use_reentrant]


@REENTRANT
@pytest.mark.parametrize("seen_before", [False, True], ids=["new", "seen-before"])
@pytest.mark.usefixtures("te_session")
def test_a_recompute_that_meets_a_module_its_forward_did_not_raises(
    use_reentrant: bool, seen_before: bool
) -> None:
    first, extra = linear(), linear()
    if seen_before:
        checkpoint(extra, use_reentrant).sum().backward()
    runs = 0

    def grows(x: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        out: torch.Tensor = first(x)
        return out if runs == 1 else extra(out)

    out = checkpoint(grows, use_reentrant)
    with pytest.raises((KeyError, IndexError)):
        out.sum().backward()
    assert runs == 2


def shrinks_in_recompute(function: torch.nn.Sequential, *args: Any, **kwargs: Any) -> Any:
    """A checkpointer whose recompute leaves out the last module of the chain."""
    first, last = function
    runs = 0

    def diverging(x: torch.Tensor) -> torch.Tensor:
        nonlocal runs
        runs += 1
        out: torch.Tensor = first(x)
        return last(out) if runs == 1 else out

    return te.checkpoint(diverging, *args, **kwargs)


def test_a_module_that_ran_in_phase_1_only_is_reported_by_the_fifo_oracle(te_session: Session) -> None:
    session = Session(te_session.backend, te_session.te_mode, shrinks_in_recompute)
    graph = c.Autocast(c.Region(c.Chain((c.Linear(), c.Linear()))))
    verdict = session.judge(c.Case(graph=graph, schedule=ONCE))

    left = [violation for violation in verdict.violations if violation.oracle == "FIFO drained"]
    assert len(left) == 1
    assert left[0].queues == {"body.body.1": 1}
