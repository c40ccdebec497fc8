"""The cases that the upstream fix was made for, by name, each against direct execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import case as c

if TYPE_CHECKING:
    from harness.session import Session
    from harness.verdict import Verdict

ITERATIONS = 3
ONCE = (c.Forward(), c.Backward(), c.OptimizerStep())
TRAIN_OR_EVAL = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
REENTRANT = pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])


def assert_held(verdict: Verdict) -> None:
    """Outputs, gradients and FP8 state equal direct execution's, and no queue holds anything."""
    assert not verdict.violations, "\n".join(str(violation) for violation in verdict.violations)
    assert {"outputs", "input gradients", "parameter gradients", "FIFO drained"} <= set(verdict.evaluated)
    assert not any(verdict.queues)


def pushes(verdict: Verdict) -> int:
    return sum(len(event.pushed) for event in verdict.events)


def pops(verdict: Verdict) -> int:
    return sum(len(event.popped) for event in verdict.events)


def region_case(body: c.Node, use_reentrant: bool, schedule: tuple[c.Step, ...]) -> c.Case:
    return c.Case(graph=c.Autocast(c.Region(body, use_reentrant=use_reentrant)), schedule=schedule)


@TRAIN_OR_EVAL
@REENTRANT
def test_module_in_train_or_eval_mode(te_session: Session, training: bool, use_reentrant: bool) -> None:
    verdict = te_session.judge(region_case(c.Linear(training=training), use_reentrant, ONCE * ITERATIONS))

    assert_held(verdict)
    assert pushes(verdict) == pops(verdict) == ITERATIONS


@TRAIN_OR_EVAL
@REENTRANT
def test_mode_flipped_between_forward_and_recompute(
    te_session: Session, training: bool, use_reentrant: bool
) -> None:
    flipped = (
        c.SetMode(0, training),
        c.Forward(),
        c.SetMode(0, not training),
        c.Backward(),
        c.OptimizerStep(),
    )
    verdict = te_session.judge(region_case(c.LayerNormLinear(), use_reentrant, flipped * ITERATIONS))

    assert_held(verdict)
    assert pushes(verdict) == pops(verdict) == ITERATIONS


@pytest.mark.parametrize(
    "middle", [c.Linear(training=False), c.LayerNormMLP(training=False)], ids=["Linear", "LayerNormMLP"]
)
def test_eval_module_in_the_middle_of_a_reentrant_region(te_session: Session, middle: c.Leaf) -> None:
    body = c.Chain((c.Linear(), middle, c.Linear()))
    verdict = te_session.judge(region_case(body, use_reentrant=True, schedule=ONCE * ITERATIONS))

    assert_held(verdict)
    assert pushes(verdict) == pops(verdict) == 3 * ITERATIONS


@TRAIN_OR_EVAL
@REENTRANT
def test_repeated_forwards_without_backward(te_session: Session, training: bool, use_reentrant: bool) -> None:
    schedule = (c.Evaluate(),) * 3 + (*ONCE, c.Evaluate()) * ITERATIONS
    verdict = te_session.judge(region_case(c.Linear(training=training), use_reentrant, schedule))

    assert_held(verdict)
    assert pushes(verdict) == ITERATIONS, "only the forwards that a backward follows may push"


@pytest.mark.parametrize("enabled_by", ["context_fn", "callable"])
@REENTRANT
def test_gradients_explicitly_enabled_under_no_grad(
    te_session: Session, enabled_by: str, use_reentrant: bool
) -> None:
    if enabled_by == "context_fn":
        region = c.Region(
            c.Linear(), use_reentrant=use_reentrant, contexts=c.Contexts("enable_grad", "enable_grad")
        )
    else:
        region = c.Region(
            c.GradMode(c.Linear(), "enable_grad"), use_reentrant=use_reentrant, function="callable"
        )
    case = c.Case(graph=c.Autocast(c.GradMode(region, "no_grad")), schedule=ONCE * ITERATIONS)
    direct, checkpointed = te_session.run_both(case)

    assert_held(te_session.judge(case))
    assert not any(event.pushed for event in checkpointed.events)
    assert all(event.phase == 1 for event in checkpointed.events), "gradients come without recomputation"
    gradients = [t for key, t in direct.tensors.items() if key.quantity == "parameter gradient"]
    assert gradients
    assert all(gradient is not None for gradient in gradients)
