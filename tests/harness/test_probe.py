"""The probe reads TE's state and puts all of it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformer_engine.pytorch as te
import transformer_engine.pytorch.distributed as te_distributed

from harness import case as c
from harness.api import autocast
from harness.build import make_recipe

if TYPE_CHECKING:
    from harness.session import Session


def pending(session: Session) -> torch.nn.Module:
    """A module with a snapshot and a first-module flag that no backward has taken."""
    module: torch.nn.Module = te.Linear(32, 32, device=session.backend.device)
    x = torch.ones(16, 32, device=session.backend.device, requires_grad=True)
    with autocast(True, make_recipe(c.DelayedScaling())):
        te.checkpoint(module, x, use_reentrant=False)
    return module


def test_what_is_pending_shows_in_queue_and_flags(te_session: Session) -> None:
    te_session.probe.reset()
    module = pending(te_session)

    assert len(te_session.probe.queue(module) or ()) == 1
    assert te_session.probe.first_flags() == [True]


def test_reset_leaves_nothing_pending_and_no_switch_on(te_session: Session) -> None:
    module = pending(te_session)
    te_session.probe.reset()

    assert not te_session.probe.queue(module)
    assert te_session.probe.first_flags() == []
    assert te_distributed.use_reentrant_activation_recompute()
    flags = dict(te_session.probe.flags())
    assert flags["recompute region"] == flags["recompute phase"] == flags["FP8 enabled"] == "False"
    assert flags["autocast depth"] == "0"


def test_switches_show_while_they_are_on(te_session: Session) -> None:
    te_session.probe.reset()
    with autocast(True, make_recipe(c.DelayedScaling())), torch.no_grad():
        flags = dict(te_session.probe.flags())
    assert (flags["FP8 enabled"], flags["autocast depth"], flags["grad enabled"]) == ("True", "1", "False")


def test_fp8_state_is_scale_and_history_in_both_directions(te_session: Session) -> None:
    module = pending(te_session)
    state = dict(te_session.probe.fp8_state(te_session.probe.holders(module)))

    assert list(state) == [
        ".scaling_fwd.scale",
        ".scaling_fwd.amax_history",
        ".scaling_bwd.scale",
        ".scaling_bwd.amax_history",
    ]
    assert state[".scaling_fwd.amax_history"].shape == (4, 3)


def test_operations_of_te_ops_show_their_state_too(te_session: Session) -> None:
    case = c.Case(graph=c.Autocast(c.OpsLinear()), schedule=(c.Forward(), c.Backward()))
    direct, _ = te_session.run_both(case)
    assert any("scaling_fwd.scale" in name for name, _ in direct.state_layout[0])


def test_modules_without_fp8_are_none_of_its_business(te_session: Session) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), te.LayerNorm(32, device=te_session.backend.device))
    assert te_session.probe.fp8_modules(model) == []
