"""A timeline shows who took whose snapshot, what was left, and says in words what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import case as c
from harness.errors import HarnessFault
from harness.mutants import matching
from harness.pairing import pair
from harness.session import Session
from harness.story import tell
from harness.te_mode import with_mutant
from harness.timeline import Timeline, make_timeline
from harness.trace import Closeup, Event, Trace
from harness.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE = c.Autocast(c.Region(c.Linear()))
TWICE = (c.Forward(), c.Backward(), c.Forward(), c.Backward())
NESTED = c.Autocast(c.Region(c.Region(c.Linear())))
NO_FLAG = "*activation_recompute_forward.__enter__:delete:*", "_is_first_fp8_module.append("
NOT_RESTORED = "*restore_fp8_meta_tensors:delete:*", "amax_history.copy_("
"""Where mutants are, and what the one that is meant deletes; its number depends on the release."""


def timeline(session: Session, graph: c.Node, schedule: tuple[c.Step, ...]) -> Timeline:
    case = c.Case(graph=graph, schedule=schedule)
    verdict, trace = session.examine(case, Closeup())
    return make_timeline(case, trace, verdict)


def pops(drawn: Timeline) -> list[tuple[int | None, int | None]]:
    """What each recompute took, and what it should have taken."""
    return [(mark.snapshot, mark.own) for mark in drawn.marks if mark.kind == "pop"]


def titles(drawn: Timeline) -> list[str]:
    return [band.full_title for band in drawn.bands]


def without(session: Session, where: str, what: str) -> Session:
    """Return a session under the mutant that deletes what is told so."""
    (found,) = (
        m.id for m in matching((where,)) if m.description.startswith("delete") and what in m.description
    )
    return Session(session.backend, with_mutant(found))


@pytest.fixture
def without_guard(te_session: Session) -> Iterator[Session]:
    session = Session(te_session.backend, with_mutant("named:guard-reverted"))
    yield session
    session.close()


# --- What is right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_in_a_case_that_holds_each_recompute_takes_its_own(te_session: Session, use_reentrant: bool) -> None:
    body = c.Chain((c.Linear(), c.LayerNormMLP()))
    drawn = timeline(te_session, c.Autocast(c.Region(body, use_reentrant=use_reentrant)), TWICE)
    assert drawn.is_right
    assert pops(drawn) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert {arrow.kind for arrow in drawn.arrows} == {"own"}
    assert [row.left for row in drawn.rows] == [(), (), ()]
    assert tell(drawn) == (
        "Every recompute took the snapshot that its own forward pushed, and nothing is left in any queue.",
    )


def test_the_live_scales_are_seen_to_be_put_back(te_session: Session) -> None:
    drawn = timeline(te_session, ONE, TWICE)
    assert [mark.restored for mark in drawn.marks] == [None, True, None, True]


def test_rows_are_regions_and_their_modules_and_bands_are_steps(te_session: Session) -> None:
    graph = c.Autocast(c.Chain((c.Region(c.TorchLinear()), c.Region(c.Chain((c.TorchGELU(), c.Linear()))))))
    schedule = (c.Evaluate(), c.SetMode(2, training=False), c.Forward(), c.Backward(), c.OptimizerStep())
    drawn = timeline(te_session, graph, schedule)
    assert [row.full_name for row in drawn.rows] == ["region 0", "region 1", "Linear 1 of region 1"]
    assert titles(drawn) == [
        "evaluation of iteration 0",
        "module 2 to eval",
        "forward of iteration 1",
        "backward of iteration 1",
        "optimizer step",
    ]
    assert [band.columns for band in drawn.bands] == [(0,), (), (1,), (2,), ()]


def test_regions_are_recomputed_from_the_last_to_the_first(te_session: Session) -> None:
    graph = c.Autocast(c.Chain((c.Region(c.Linear()), c.Region(c.Linear()))))
    drawn = timeline(te_session, graph, (c.Forward(), c.Backward()))
    ran = [(drawn.rows[bar.row].region, bar.recompute) for bar in drawn.bars]
    assert ran == [(0, False), (1, False), (1, True), (0, True)]
    first, second = (mark for mark in drawn.marks if mark.kind == "pop")
    assert (first.column, second.column) == (1, 1)
    assert first.place < second.place


def test_where_no_snapshot_is_due_there_is_nothing_to_tell(te_session: Session) -> None:
    case = c.Case(graph=ONE, schedule=TWICE, recipe=c.HighPrecision())
    verdict, trace = te_session.examine(case, Closeup())
    drawn = make_timeline(case, trace, verdict)
    assert [row.name for row in drawn.rows] == ["region 0"]
    assert tell(drawn) == ("No snapshot was due, and none was pushed or taken.",)


# --- What is wrong ------------------------------------------------------------------------------------


def test_after_a_dropped_forward_the_next_recompute_takes_its_snapshot(te_session: Session) -> None:
    drawn = timeline(te_session, ONE, (c.Forward(), c.Abandon(), c.Forward(), c.Backward()))
    assert pops(drawn) == [(0, 1)]
    assert [(arrow.kind, arrow.giver.snapshot) for arrow in drawn.arrows] == [("wrong", 0), ("due", 1)]
    (left,) = drawn.rows[1].left
    assert (left.snapshot, left.wrong) == (1, True)
    assert titles(drawn)[1] == "dropping forward of iteration 0"
    assert tell(drawn) == (
        "Linear of region 0 took snapshot 0, pushed in the forward of iteration 0, which no backward"
        " followed, for the recompute of iteration 1; its own was snapshot 1, pushed in the forward of"
        " iteration 1.",
        "1 snapshot is left over at the end, in the queue of Linear of region 0; no backward takes what is"
        " left.",
        "1 first-module flag is left over at the end.",
    )


def test_backwards_out_of_order_take_one_anothers(te_session: Session) -> None:
    schedule = (c.Forward(), c.Forward(), c.Backward(which=1), c.Backward())
    drawn = timeline(te_session, ONE, schedule)
    assert pops(drawn) == [(0, 1), (1, 0)]
    assert not any(row.left for row in drawn.rows)
    (told,) = tell(drawn)
    assert "pushed in the forward of iteration 0, whose backward comes later, for the recompute of" in told
    assert told.endswith("The same happened once more.")


def test_in_nested_regions_an_inner_recompute_owes_to_the_outer_one(te_session: Session) -> None:
    drawn = timeline(te_session, NESTED, (c.Forward(), c.Backward()))
    assert [(mark.kind, mark.snapshot, mark.own) for mark in drawn.marks] == [
        ("push", 0, None),
        ("no pop", None, None),
        ("push", 1, None),
        ("pop", 0, 1),
    ]
    assert [band.columns for band in drawn.bands] == [(0,), (1, 2)]
    outer = [(bar.start[0], bar.end[0]) for bar in drawn.bars if bar.row == 0]
    assert outer == [(0, 0), (1, 1)]
    assert "ran again for the recompute of iteration 0 without taking a snapshot" in tell(drawn)[0]


def test_a_run_that_raises_shows_where_it_stopped(without_guard: Session) -> None:
    graph = c.Autocast(c.Region(c.Linear(training=False)))
    drawn = timeline(without_guard, graph, TWICE)
    assert [(mark.kind, mark.raised) for mark in drawn.marks] == [("no push", ""), ("no pop", "KeyError")]
    assert [band.reached for band in drawn.bands] == [True, True, False, False]
    assert tell(drawn) == (
        "Linear of region 0 found no snapshot to take for the recompute of iteration 0, since its forward had"
        " pushed none: KeyError.",
    )


def test_what_waits_for_its_backward_when_a_run_stops_is_not_left_over(without_guard: Session) -> None:
    graph = c.Autocast(c.Chain((c.Region(c.Linear()), c.Region(c.Linear(training=False)))))
    drawn = timeline(without_guard, graph, (c.Forward(), c.Backward()))
    assert drawn.error is not None
    assert [(left.snapshot, left.wrong) for row in drawn.rows for left in row.left] == [(0, False)]


def test_a_run_that_stops_for_want_of_a_flag_says_that_none_was_left(te_session: Session) -> None:
    session = without(te_session, *NO_FLAG)
    try:
        drawn = timeline(session, ONE, (c.Forward(), c.Backward()))
    finally:
        session.close()
    assert tell(drawn) == (
        "The run stopped in the backward of iteration 0: IndexError: pop from empty list.",
        "No first-module flag was left then: recomputes take one each.",
    )


def test_scales_that_are_not_put_back_are_told(te_session: Session) -> None:
    session = without(te_session, *NOT_RESTORED)
    try:
        drawn = timeline(session, ONE, (c.Forward(), c.Backward()))
    finally:
        session.close()
    assert [mark.restored for mark in drawn.marks] == [None, False]
    assert tell(drawn)[0] == (
        "The live scales of Linear of region 0 were not put back after the recompute of iteration 0."
    )


def test_what_modules_in_no_region_left_is_told_too() -> None:
    closeup = Closeup(left_elsewhere={"body.1": 2})
    case = c.Case(graph=ONE, schedule=(c.Evaluate(),))
    drawn = make_timeline(case, Trace(closeup=closeup), Verdict(fingerprint="", violations=()))
    assert [row.full_name for row in drawn.rows] == ["region 0", "in no region", "body.1, in no region"]
    assert tell(drawn)[0].startswith("2 snapshots are left over at the end, in the queue of body.1")


def test_first_module_flags_are_counted_after_each_step(te_session: Session) -> None:
    drawn = timeline(te_session, ONE, (c.Forward(), c.Abandon(), c.Forward(), c.Backward()))
    assert [band.first_flags for band in drawn.bands] == [1, 1, 2, 1]
    assert drawn.flags_left == 1


def test_a_timeline_needs_a_closeup() -> None:
    case = c.Case(graph=ONE, schedule=TWICE)
    with pytest.raises(HarnessFault, match="close-up"):
        make_timeline(case, Trace(), Verdict(fingerprint=case.fingerprint, violations=()))


# --- Who owes whom ------------------------------------------------------------------------------------


def runs(iteration: int, phase: int = 1, region: int = 0) -> Event:
    return Event(region, iteration, 1 if phase == 1 else 2)


def passes(iteration: int, phase: int = 1, **moved: tuple[int, ...]) -> Event:
    """One forward of a module of region 0."""
    return Event(0, iteration, 1 if phase == 1 else 2, module="region 0", delayed=True, **moved)  # type: ignore[arg-type]


def test_a_pop_of_what_was_never_seen_pushed_is_another_s() -> None:
    events = [runs(0), passes(0, pushed=(0,)), runs(0, 2), passes(0, 2, popped=(-1,))]
    *_, recompute = pair(events)[1]
    assert [(take.snapshot, take.own, take.wrong) for take in recompute.takes] == [(-1, 0, True)]


def test_a_forward_takes_nothing_of_its_own() -> None:
    _, second = pair([runs(0), passes(0, pushed=(0,)), runs(1), passes(1, popped=(0,))])[1]
    assert [(take.snapshot, take.own, take.wrong) for take in second.takes] == [(0, None, True)]


def test_a_module_that_runs_twice_in_a_region_takes_what_it_pushed_in_that_order() -> None:
    events = [runs(0), passes(0, pushed=(0,)), passes(0, pushed=(1,))]
    events += [runs(0, 2), passes(0, 2, popped=(0,)), passes(0, 2, popped=(1,))]
    taken = [take for forward in pair(events)[1] for take in forward.takes]
    assert [(take.snapshot, take.own) for take in taken] == [(0, 0), (1, 1)]


def test_a_second_recompute_finds_that_its_forward_pushed_one_and_takes_none() -> None:
    events = [
        runs(0),
        passes(0, pushed=(0,)),
        runs(0, 2),
        passes(0, 2, popped=(0,)),
        runs(0, 2),
        passes(0, 2),
    ]
    forward, first, second = pair(events)[1]
    assert (first.lacks_pop, second.lacks_pop) == (False, True)
    assert not forward.lacks_push


def test_an_evaluation_owes_nothing() -> None:
    (forward,) = pair([runs(0), passes(0)])[1]
    assert not forward.lacks_push
    assert not forward.lacks_pop


def test_a_step_of_a_new_kind_is_named_after_it() -> None:
    closeup = Closeup(
        steps=[0, 0], iterations={0: 0}, modules={"region 0": "Linear"}, left={"region 0": (0,)}
    )
    case = c.Case(graph=ONE, schedule=(c.OptimizerStep(),))
    trace = Trace(events=[runs(0), passes(0, pushed=(0,))], closeup=closeup)
    drawn = make_timeline(case, trace, Verdict(fingerprint="", violations=()))
    assert titles(drawn) == ["optimizer step of iteration 0"]
    assert [left.wrong for left in drawn.rows[1].left] == [True]
