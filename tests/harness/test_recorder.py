"""The recorder sees which snapshot each module pushed and popped, and holds none of them."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from harness import case as c
from harness.trace import Closeup

if TYPE_CHECKING:
    from harness.session import Session
    from harness.trace import Event

ONCE = (c.Forward(), c.Backward())
REENTRANT = pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])


def events(session: Session, graph: c.Node, recipe: c.Recipe | None = None) -> list[Event]:
    case = c.Case(graph=graph, schedule=ONCE, recipe=recipe or c.DelayedScaling())
    return session.run_both(case)[1].events


@REENTRANT
def test_pushes_and_pops_are_numbered_and_in_order(te_session: Session, use_reentrant: bool) -> None:
    body = c.Chain((c.Linear(), c.LayerNormMLP()))
    seen = [
        (event.phase, event.module, event.pushed, event.popped)
        for event in events(te_session, c.Autocast(c.Region(body, use_reentrant=use_reentrant)))
    ]
    assert seen == [
        (1, "", (), ()),
        (1, "region 0: 0", (0,), ()),
        (1, "region 0: 1", (1,), ()),
        (2, "", (), ()),
        (2, "region 0: 0", (), (0,)),
        (2, "region 0: 1", (), (1,)),
    ]


def test_regions_recompute_last_first_each_with_its_own_snapshot(te_session: Session) -> None:
    graph = c.Autocast(c.Chain((c.Region(c.Linear()), c.Region(c.Linear()))))
    moved = [(e.region, e.pushed, e.popped) for e in events(te_session, graph) if e.module]
    assert moved == [(0, (0,), ()), (1, (1,), ()), (1, (), (1,)), (0, (), (0,))]


def test_the_parts_of_a_composite_module_are_watched_one_by_one(te_session: Session) -> None:
    graph = c.Autocast(c.Region(c.TransformerLayer()))
    seen = events(te_session, graph)
    pushing = {event.module for event in seen if event.pushed}

    assert pushing >= {
        "region 0: self_attention.layernorm_qkv",
        "region 0: self_attention.proj",
        "region 0: layernorm_mlp",
    }
    assert pushing == {event.module for event in seen if event.popped}


@pytest.mark.parametrize("recipe", [c.CurrentScaling(), c.HighPrecision()])
def test_without_delayed_scaling_nothing_is_due_and_nothing_pushed(
    te_session: Session, recipe: c.Recipe
) -> None:
    for event in events(te_session, c.Autocast(c.Region(c.Linear())), recipe):
        assert not event.delayed
        assert not event.pushed


def test_modules_outside_regions_are_not_watched(te_session: Session) -> None:
    assert events(te_session, c.Autocast(c.Linear())) == []


def test_a_closeup_notes_steps_restores_and_what_is_left(te_session: Session) -> None:
    schedule = (c.Forward(), c.Abandon(), c.Forward(), c.OptimizerStep(), c.Backward())
    case = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=schedule)
    closeup = Closeup()
    _, trace = te_session.examine(case, closeup)
    assert trace.closeup is closeup
    assert closeup.modules == {"region 0": "Linear"}
    assert closeup.steps == [0, 0, 2, 2, 4, 4]
    assert closeup.iterations == {0: 0, 1: 0, 2: 1, 4: 1}
    assert closeup.restored == {5: True}
    assert closeup.left == {"region 0": (1,)}
    assert closeup.left_elsewhere == {}
    assert closeup.first_flags == {0: 1, 1: 1, 2: 2, 3: 2, 4: 1}
    assert closeup.pending == ()


def test_a_closeup_changes_nothing_that_is_seen_without(te_session: Session) -> None:
    case = c.Case(graph=c.Autocast(c.Region(c.LayerNormMLP())), schedule=(*ONCE, *ONCE))
    assert te_session.examine(case, Closeup())[0] == te_session.judge(case)


def test_a_run_leaves_its_model_to_be_freed(te_session: Session) -> None:
    models: list[weakref.ref[object]] = []
    original = te_session.probe.fp8_modules

    def spy(root: object) -> object:
        models.append(weakref.ref(root))
        return original(root)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(te_session.probe, "fp8_modules", spy)
        events(te_session, c.Autocast(c.Region(c.Linear())))
    te_session.probe.reset()
    gc.collect()

    assert models
    assert all(model() is None for model in models)
