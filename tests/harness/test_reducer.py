"""The reducer ends at a case that no change makes smaller, whatever is wanted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import case as c
from harness import validity
from harness.beyond import features_beyond
from harness.failure import size_of
from harness.reducer import reduce, smaller
from strategies.frontier import frontier

if TYPE_CHECKING:
    from collections.abc import Callable

draws = settings(database=None, deadline=None, derandomize=True, max_examples=30)

LARGE = c.Case(
    graph=c.Autocast(
        c.Chain(
            (
                c.TorchLinear(),
                c.Region(
                    c.GradMode(c.Residual(c.LayerNormMLP(activation="relu")), "set_grad_enabled_true"),
                    use_reentrant=False,
                    gain=c.Gain(2.0, by_keyword=True),
                ),
                c.Sum((c.Region(c.Linear(bias=False)), c.Reuse(1), c.TorchDropout(on_cpu=True), c.Twin(2))),
            )
        )
    ),
    schedule=(
        c.Forward(64.0), c.SetMode(2, False), c.Forward(512.0), c.Evaluate(), c.Backward(0.5, which=1),
        c.OptimizerStep(), c.Backward(), c.Forward(fails=1), c.SaveState(), c.LoadState(),
    ),
    recipe=c.DelayedScaling(history=16, margin=2),
    rows=32,
    seed=77,
)  # fmt: skip


def test_who_was_meant_is_meant_after_every_change() -> None:
    """By their kinds: a linear with a layer norm is copied, an MLP is switched, used again and raises."""
    graph = c.Chain(
        (
            c.TorchLayerNorm(),
            c.Residual(c.Region(c.Chain((c.TorchGELU(), c.LayerNormLinear())))),
            c.Sum((c.Region(c.LayerNormMLP()), c.Chain((c.TorchLinear(), c.Region(c.RMSNorm()))))),
            c.Chain((c.Twin(2), c.Reuse(3))),
        )
    )
    steps = (c.SetMode(3, training=False), c.Forward(), c.Backward(fails=1), c.Forward(fails=1))
    case = c.Case(graph=graph, schedule=steps)
    kinds = {type(leaf) for leaf in c.modules(case)}
    seen = 0
    for changed in smaller(case):
        leaves = c.modules(changed)
        if not {type(leaf) for leaf in leaves} <= kinds:
            continue
        seen += 1
        for node in c.walk(changed.graph):
            if isinstance(node, c.Reuse | c.Twin):
                meant = c.LayerNormMLP if isinstance(node, c.Reuse) else c.LayerNormLinear
                assert isinstance(leaves[node.module], meant)
        for step in changed.schedule:
            if isinstance(step, c.SetMode):
                assert isinstance(leaves[step.module], c.LayerNormMLP)
            elif isinstance(step, c.Forward | c.Backward) and step.fails is not None:
                assert isinstance(c.regions(changed)[step.fails].body, c.LayerNormMLP)
    assert seen > 15


def test_large_numbers_come_down_in_few_steps() -> None:
    case = c.Case(graph=c.Linear(), schedule=(c.Evaluate(),), seed=4_000_000_000, width=64)
    asked: list[c.Case] = []

    def wanted(candidate: c.Case) -> bool:
        asked.append(candidate)
        return candidate.seed > 1000 and candidate.width == 64

    assert 1000 < reduce(case, wanted).seed < 4000
    assert len(asked) < 60


def test_a_large_case_comes_down_to_what_is_wanted() -> None:
    def wanted(case: c.Case) -> bool:
        return any(isinstance(step, c.Backward) and step.which == 1 for step in case.schedule)

    plain = (c.Forward(), c.Forward(), c.Backward(which=1), c.Backward())
    assert reduce(LARGE, wanted) == c.Case(graph=c.Linear(), schedule=plain)


def test_modules_and_regions_keep_their_numbers_when_others_go() -> None:
    def wanted(case: c.Case) -> bool:
        """Tell whether the region of the linear without bias raises, and its mode is switched."""
        numbers = [n for n, leaf in enumerate(c.modules(case)) if getattr(leaf, "bias", True) is False]
        failing = [step.fails for step in case.schedule if isinstance(step, c.Forward)]
        return (
            len(numbers) == 1
            and any(isinstance(step, c.SetMode) and step.module in numbers for step in case.schedule)
            and any(number is not None and c.regions(case)[number].use_reentrant for number in failing)
        )

    linear = c.Region(c.Linear(bias=False))
    steps = (c.SetMode(0, False), c.Forward(fails=0))
    assert reduce(LARGE, wanted) == c.Case(graph=linear, schedule=steps)


@pytest.mark.parametrize(
    ("wanted", "graph"),
    [
        (lambda case: any(isinstance(n, c.Reuse) for n in c.walk(case.graph)), "Chain"),
        (lambda case: bool(c.twins(case)), "Sum"),
        (lambda case: any(isinstance(n, c.LayerNormMLP) for n in c.walk(case.graph)), "LayerNormMLP"),
        (lambda case: any(isinstance(n, c.GradMode) for n in c.walk(case.graph)), "GradMode"),
        (lambda case: any(region.gain for region in c.regions(case)), "Region"),
    ],
)
def test_what_is_not_wanted_goes(wanted: Callable[[c.Case], bool], graph: str) -> None:
    reduced = reduce(LARGE, wanted)
    assert wanted(reduced)
    assert type(reduced.graph).__name__ == graph
    assert len(c.walk(reduced.graph)) <= 3
    assert len(reduced.schedule) == 1
    assert msgspec.structs.replace(reduced, graph=c.Linear(), schedule=()) == c.Case(
        graph=c.Linear(), schedule=()
    )


@draws
@given(frontier(steered=False), st.randoms(use_true_random=False))
def test_every_change_is_valid_and_smaller(case: c.Case, random: st.DrawFn) -> None:
    changes = list(smaller(case))
    for changed in random.sample(changes, min(20, len(changes))):  # type: ignore[attr-defined]
        assert validity.decode(c.encode(changed)) == changed
        assert size_of(changed) < size_of(case)


@draws
@given(frontier(steered=False), st.data())
def test_no_change_makes_the_result_smaller(case: c.Case, data: st.DataObject) -> None:
    features = sorted(features_beyond(case))
    feature = data.draw(st.sampled_from(features)) if features else None

    def wanted(candidate: c.Case) -> bool:
        return feature is None or feature in features_beyond(candidate)

    reduced = reduce(case, wanted)
    assert wanted(reduced)
    assert not any(wanted(changed) for changed in smaller(reduced))


def test_it_asks_no_more_often_than_it_may() -> None:
    asked: list[c.Case] = []

    def never(case: c.Case) -> bool:
        asked.append(case)
        return False

    assert reduce(LARGE, never, most=7) == LARGE
    assert len(asked) == 7


def test_it_tells_of_each_smaller_case() -> None:
    told: list[c.Case] = []
    reduced = reduce(LARGE, lambda _case: True, on_smaller=told.append)
    assert told[-1] == reduced
    assert [size_of(case) for case in told] == sorted([size_of(case) for case in told], reverse=True)
