"""Each oracle on traces made by hand: what it reports, where, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness import case as c
from harness import oracles
from harness.trace import Call, Event, RunError, Standstill, Trace
from harness.violations import ORACLES, Violation

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
CALL = Call(region=0, iteration=0, grad_enabled=True, needs_grad=True, reentrant=True)
PUSH = Event(0, 0, 1, "region 0", True, (0,), ())
POP = Event(0, 0, 2, "region 0", True, (), (0,))
RUN = (Event(0, 0, 1), Event(0, 0, 2))


def judge(name: str, direct: Trace, checkpointed: Trace) -> list[Violation]:
    return list(oracles.ALL[name](CASE, direct, checkpointed))  # type: ignore[index]


def standstill(**changes: Any) -> Standstill:
    return Standstill(0, {}, 0, (("phase", "False"),))._replace(**changes)


def test_every_name_has_its_oracle_in_the_order_of_reports() -> None:
    assert tuple(oracles.ALL) == ORACLES


def test_a_snapshot_left_over_is_reported_with_its_length_and_iteration() -> None:
    left = Trace(standstills=[standstill(), standstill(iteration=1, queues={"body": 2})])
    (violation,) = judge("FIFO drained", Trace(), left)

    assert (violation.iteration, violation.queues) == (1, {"body": 2})


def test_a_first_module_flag_left_over_is_reported_too() -> None:
    (violation,) = judge("FIFO drained", Trace(), Trace(standstills=[standstill(first_flags=1)]))
    assert violation.queues == {"first-module flags": 1}


def test_a_recompute_that_pops_its_own_push_is_paired() -> None:
    assert judge("pairing", Trace(), Trace(calls=[CALL], events=[*RUN, PUSH, POP])) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([PUSH, Event(0, 0, 2, "region 0", True, (), (7,))], "popped snapshot [7], expected its own [0]"),
        ([Event(0, 0, 1, "region 0", True), POP], "pushed 0 snapshots in one forward"),
        ([PUSH, Event(0, 0, 2, "region 0", True)], "popped 0 snapshots in one forward"),
        ([Event(0, 0, 1, "region 0", meant=True)], "ran without delayed scaling, where the case has"),
        (
            [Event(0, 0, 1, "region 0", True, (0,), (), meant=False)],
            "ran with delayed scaling, where the case has not",
        ),
    ],
)
def test_a_recompute_that_does_not_pop_its_own_push_is_reported(events: list[Event], message: str) -> None:
    violations = judge("pairing", Trace(), Trace(calls=[CALL], events=events))
    assert message in violations[0].message
    assert (violations[0].region, violations[0].module) == (0, "region 0")


def test_a_module_without_delayed_scaling_owes_no_snapshot() -> None:
    events = [Event(0, 0, 1, "region 0"), Event(0, 0, 2, "region 0")]
    assert judge("pairing", Trace(), Trace(calls=[CALL], events=events)) == []


@pytest.mark.parametrize(
    ("call", "phases", "held"),
    [
        (CALL, [1, 2], True),
        (CALL, [1], False),
        (CALL, [1, 1, 2], False),
        (CALL, [1, 2, 2], False),
        (Call(0, 0, grad_enabled=False, needs_grad=True, reentrant=True), [1], True),
        (Call(0, 0, grad_enabled=False, needs_grad=True, reentrant=True), [1, 2], False),
        (Call(0, 0, grad_enabled=True, needs_grad=False, reentrant=True), [1], True),
        (Call(0, 0, grad_enabled=True, needs_grad=False, reentrant=False), [1, 2], True),
    ],
)
def test_a_callable_runs_once_per_phase_that_the_checkpoint_owes(
    call: Call, phases: list[Any], held: bool
) -> None:
    direct = Trace(calls=[call], events=[Event(0, 0, 1)])
    checkpointed = Trace(calls=[call], events=[Event(0, 0, phase) for phase in phases])
    assert (judge("recompute count", direct, checkpointed) == []) is held


def test_the_direct_run_must_run_the_callable_once() -> None:
    direct = Trace(calls=[CALL], events=[Event(0, 0, 1), Event(0, 0, 1)])
    (violation,) = judge("recompute count", direct, Trace(calls=[CALL], events=list(RUN)))
    assert "the direct run" in violation.message


def test_a_flag_left_switched_on_is_named() -> None:
    left = Trace(standstills=[standstill(flags=(("phase", "True"),))])
    (violation,) = judge("global state", Trace(standstills=[standstill()]), left)
    assert violation.message == "phase is True, expected False"


def test_a_random_state_other_than_after_the_direct_run_is_reported() -> None:
    states = [Trace(rng_states=(torch.tensor([n], dtype=torch.uint8),)) for n in (1, 2)]
    assert judge("global state", states[0], states[0]) == []
    assert len(judge("global state", *states)) == 1


def error(name: str, step: int = 1) -> RunError:
    return RunError(step, "Backward", 0, name, "boom")


def test_errors_must_be_the_same_in_step_and_type() -> None:
    assert judge("same errors", Trace(error=error("KeyError")), Trace(error=error("KeyError"))) == []
    assert judge("same errors", Trace(), Trace(error=error("KeyError")))[0].message.startswith(
        "KeyError: boom"
    )
    assert len(judge("same errors", Trace(error=error("KeyError")), Trace(error=error("KeyError", 0)))) == 1
    assert "nothing raised" in judge("same errors", Trace(error=error("KeyError")), Trace())[0].message


@pytest.mark.parametrize("name", ["KeyError", "IndexError"])
def test_a_recompute_without_a_snapshot_is_one_kind_however_te_raises_it(name: str) -> None:
    failed = Trace(error=error(name), events=[Event(0, 0, 2, "region 0", True)])
    (violation,) = judge("same errors", Trace(), failed)
    assert violation.signature == "same errors: no snapshot to pop"


def test_after_an_error_nothing_that_it_cut_short_is_judged() -> None:
    names = oracles.applicable(Trace(), Trace(error=error("KeyError")))
    assert set(names).isdisjoint({"pairing", "recompute count", "global state", "FP8 state", "steady memory"})


def test_what_was_left_before_an_error_is_still_reported() -> None:
    failed = Trace(standstills=[standstill(queues={"body": 1})], error=error("KeyError"))
    found = {violation.oracle for violation in oracles.judge(CASE, Trace(), failed)}
    assert found == {"FIFO drained", "same errors"}


def test_after_no_error_every_oracle_judges() -> None:
    assert oracles.applicable(Trace(), Trace()) == ORACLES


def test_memory_may_be_larger_than_direct_but_not_grow() -> None:
    direct = Trace(memory={0: 100, 1: 110, 2: 120})
    assert judge("steady memory", direct, Trace(memory={0: 150, 1: 160, 2: 170})) == []
    (violation,) = judge("steady memory", direct, Trace(memory={0: 150, 1: 160, 2: 171}))
    assert (violation.iteration, violation.message[:7]) == (2, "1 bytes")


def test_state_that_only_one_run_holds_is_named() -> None:
    direct, checkpointed = Trace(state_layout={0: [("a.scale", 3)]}), Trace(state_layout={0: []})
    (violation,) = judge("FP8 state", direct, checkpointed)
    assert "a.scale" in violation.message
