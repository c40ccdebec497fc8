"""Names of what a case exercises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from harness import case as c
from harness.features import CATALOGUE, features
from strategies.contract import contract

ONCE: tuple[c.Step, ...] = (c.Forward(), c.Backward())


def named(graph: c.Node, schedule: tuple[c.Step, ...] = ONCE, **fields: Any) -> frozenset[str]:
    return features(c.Case(graph=graph, schedule=schedule, **fields))


def magnitudes(*sizes: float) -> set[str]:
    schedule = tuple(step for size in sizes for step in (c.Forward(size), c.Backward()))
    return {
        name.removeprefix("forward magnitude: ")
        for name in named(c.Linear(), schedule)
        if name.startswith("forward magnitude: ")
    }


def test_the_catalogue_is_sorted_and_has_no_duplicates() -> None:
    assert list(CATALOGUE) == sorted(set(CATALOGUE))


@settings(database=None, deadline=None, derandomize=True, max_examples=200)
@given(contract())
def test_only_names_of_the_catalogue_are_given(case: c.Case) -> None:
    assert features(case) <= set(CATALOGUE)


def test_the_plain_case_has_plain_features() -> None:
    assert named(c.Autocast(c.Region(c.Linear()))) == {
        "module: Linear", "reentrant", "function: module", "autocast around region", "iterations: 1",
        "recipe: DelayedScaling", "algorithm: max", "format: HYBRID", "dtype: float32",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("graph", "name"),
    [
        (c.Linear(training=False), "eval module"),
        (c.Linear(frozen=True), "frozen module"),
        (c.MultiheadAttention(dropout=0.1), "dropout"),
        (c.Linear(), "module outside regions"),
        (c.Linear(), "no autocast"),
        (c.Region(c.TorchGELU()), "region without TE modules"),
        (c.Region(c.Linear(), use_reentrant=False), "non-reentrant"),
        (c.Region(c.Linear(), gain=c.Gain(as_tensor=True)), "gain: positional tensor"),
        (c.Region(c.Linear(), gain=c.Gain(by_keyword=True)), "gain: keyword float"),
        (c.Region(c.Linear(), contexts=c.Contexts("no_grad")), "context_fn forward: no_grad"),
        (c.Region(c.GradMode(c.Linear(), "no_grad")), "grad mode inside region: no_grad"),
        (c.GradMode(c.Region(c.Linear()), "no_grad"), "grad mode around region: no_grad"),
        (c.Region(c.Autocast(c.Linear())), "autocast inside region"),
        (c.Autocast(c.Region(c.Autocast(c.Linear()))), "autocast nested"),
        (c.Autocast(c.Autocast(c.Linear(), enabled=False)), "autocast off inside"),
        (c.Chain((c.Autocast(c.Linear()), c.Autocast(c.Linear()))), "several autocasts"),
    ],
)
def test_features_of_graphs(graph: c.Node, name: str) -> None:
    assert name in named(graph)


@pytest.mark.parametrize(
    ("sizes", "patterns"),
    [
        ([1, 1], set()),
        ([1, 1, 1000, 1], {"spike"}),
        ([1000], {"spike"}),
        ([1, 8, 64], {"growth"}),
        ([1, 0.1], {"decay"}),
        ([1, 0, 1], {"zeros"}),
        ([0], {"zeros"}),
        ([1e-6, 1e-6], {"tiny"}),
    ],
)
def test_features_of_magnitudes(sizes: list[float], patterns: set[str]) -> None:
    assert magnitudes(*sizes) == patterns


def test_a_switch_counts_only_if_it_changes_the_mode() -> None:
    idle = (c.SetMode(0, training=True), c.Forward(), c.SetMode(0, training=True), c.Backward())
    assert not {"mode flipped before forward", "mode flipped before backward"} & named(c.Linear(), idle)
    real = (c.SetMode(0, training=False), c.Forward(), c.SetMode(0, training=True), c.Backward())
    assert {"mode flipped before forward", "mode flipped before backward"} <= named(c.Linear(), real)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"torch_autocast": True}, "torch autocast"),
        ({"input_requires_grad": False}, "input without gradient"),
        ({"recipe": c.DelayedScaling(margin=-1)}, "margin: negative"),
        ({"schedule": (c.Evaluate(mode="inference_mode"),)}, "evaluation: inference_mode"),
    ],
)
def test_features_of_settings(fields: dict[str, Any], name: str) -> None:
    assert name in named(c.Linear(), **fields)
