"""Sentences that say what a case is."""

from __future__ import annotations

from typing import Any

import pytest

from harness import case as c
from harness.sentence import describe

ONCE: tuple[c.Step, ...] = (c.Forward(), c.Backward())


def case(graph: c.Node, schedule: tuple[c.Step, ...] = ONCE, **fields: Any) -> c.Case:
    return c.Case(graph=graph, schedule=schedule, **fields)


def test_the_plain_case() -> None:
    assert describe(case(c.Autocast(c.Region(c.Linear())))) == (
        "Linear in a reentrant region, inside an FP8 autocast (DelayedScaling, HYBRID, history 4, max);"
        " 1 iteration."
    )


def test_a_mode_that_is_switched_between_forward_and_backward() -> None:
    schedule = (c.Forward(), c.SetMode(0, training=False), c.Backward())
    assert describe(case(c.Autocast(c.Region(c.LayerNormMLP(training=False))), schedule)) == (
        "LayerNormMLP (eval) in a reentrant region, inside an FP8 autocast"
        " (DelayedScaling, HYBRID, history 4, max); 1 iteration, mode of module 0 switched to eval between"
        " forward and backward."
    )


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (c.Linear(), "Linear, with no FP8 autocast; "),
        (
            c.LayerNormMLP(frozen=True, bias=False, activation="swiglu"),
            "(frozen, no bias, activation swiglu)",
        ),
        (c.TorchDropout(p=0.5), "TorchDropout (p 0.5)"),
        (c.Residual(c.Linear()), "A residual around Linear"),
        (c.Sum((c.Linear(), c.RMSNorm())), "The sum of Linear and RMSNorm"),
        (c.Chain((c.Linear(), c.RMSNorm())), "Linear, then RMSNorm"),
        (c.Chain(()), "Nothing"),
        (c.GradMode(c.Region(c.Linear()), "no_grad"), "Linear in a reentrant region, under no_grad"),
        (
            c.Region(c.Chain((c.Linear(), c.RMSNorm())), use_reentrant=False),
            "[Linear, then RMSNorm] in a non-",
        ),
        (
            c.Region(c.Linear(), function="method", gain=c.Gain(2.0, as_tensor=True, by_keyword=True)),
            "(as a method, gain 2 as a tensor by keyword)",
        ),
        (c.Region(c.Linear(), contexts=c.Contexts("no_grad", "null")), "(contexts no_grad and null)"),
        (
            c.Chain((c.Autocast(c.Linear()), c.Autocast(c.RMSNorm(), enabled=False))),
            "[Linear inside an FP8 autocast], then [RMSNorm with FP8 off], recipe DelayedScaling, HYBRID",
        ),
    ],
)
def test_graphs(graph: c.Node, words: str) -> None:
    assert words in describe(case(graph))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schedule": (*ONCE, c.Forward(1000.0), c.Backward())}, "2 iterations, inputs of size 1 and 1000."),
        ({"schedule": (c.Forward(), c.Backward(0.0))}, "1 iteration, gradients of size 0."),
        (
            {"schedule": (c.Forward(), c.Forward(), c.Backward(), c.Backward())},
            "2 iterations, up to 2 forwards before a backward.",
        ),
        ({"schedule": (c.Evaluate(), *ONCE)}, "1 iteration, 1 evaluation under no_grad."),
        ({"schedule": (*ONCE, c.OptimizerStep())}, "1 iteration, 1 optimizer step."),
        (
            {"schedule": (*ONCE, c.SetMode(0, training=True), *ONCE)},
            "mode of module 0 switched to train before the forward of iteration 2.",
        ),
        (
            {"dtype": "bfloat16", "rows": 32, "torch_autocast": True},
            "With bfloat16, torch autocast and 32 rows.",
        ),
        (
            {"schedule": (c.Forward(), *(c.SetMode(0, training=True),) * 3, c.Backward())},
            "1 iteration, 3 modes switched, 3 of them between forward and backward.",
        ),
        ({"input_requires_grad": False}, "With an input that needs no gradient."),
        ({"width": 64, "quantized_parameters": True}, "With quantized parameters and width 64."),
        ({"recipe": c.CurrentScaling()}, "(CurrentScaling, HYBRID)"),
        ({"recipe": c.HighPrecision()}, "(HighPrecision)"),
        ({"recipe": c.DelayedScaling(margin=2)}, "max, margin 2)"),
    ],
)
def test_everything_else(fields: dict[str, Any], words: str) -> None:
    assert words in describe(case(c.Autocast(c.Linear()), **fields))
