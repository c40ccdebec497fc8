"""The strategies themselves: their arguments, their reach, and what they import."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from harness import case as c
from harness import record
from harness.features import CATALOGUE, features
from strategies import recipes
from strategies.contract import contract
from strategies.domains import DOMAINS
from strategies.graphs import Entrance, graphs
from strategies.modules import ANCHORS, WEIGHTS, modules
from strategies.schedules import schedules
from strategies.weights import PLACES, rarely, weighted

T = TypeVar("T")
draws = settings(database=None, deadline=None, derandomize=True)


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Return what a fixed seed draws; a failed health check fails the test."""
    cases: list[T] = []

    @settings(draws, max_examples=count)
    @given(strategy)
    def collect(case: T) -> None:
        cases.append(case)

    collect()
    return cases


def test_five_hundred_draws_reach_every_feature() -> None:
    cases = record.draw(contract(), 500, seed=1)
    reached = {name for case in cases for name in features(case)}
    assert reached == set(CATALOGUE)
    assert len(cases) == 500
    small = [case for case in cases if len(c.modules(case)) <= 3]
    assert len(small) > len(cases) / 2


def test_nothing_imports_torch_or_transformer_engine() -> None:
    program = (
        "import strategies.domains, strategies.contract, harness.sentence, sys;"
        "strategies.contract.contract();"
        "sys.exit('torch' in sys.modules or 'transformer_engine' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603


def test_a_seed_draws_the_same_cases_whatever_else_is_imported() -> None:
    """This process holds pytest and the tests; a fresh one holds next to nothing."""
    program = (
        "from harness.record import draw; from strategies.contract import contract;"
        "print(*(case.fingerprint for case in draw(contract(), 300, seed=3)))"
    )
    fresh = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)  # noqa: S603
    assert fresh.stdout.split() == [case.fingerprint for case in record.draw(contract(), 300, seed=3)]


def test_no_choice_has_more_places_than_stay_reproducible() -> None:
    choice = weighted((1000, "often"), (1, "seldom"))
    assert set(drawn(choice, 400)) == {"often", "seldom"}
    with pytest.raises(InvalidArgument):
        weighted(*((1, number) for number in range(PLACES + 1)))


def test_every_domain_is_named_described_and_drawable() -> None:
    assert "contract" in DOMAINS
    for name, domain in DOMAINS.items():
        assert domain.name == name
        assert domain.description
        assert drawn(domain.strategy(), 5)


@draws
@given(modules([c.TorchGELU, c.RMSNorm], may_freeze=False))
def test_modules_are_of_the_kinds_asked_for(leaf: c.Leaf) -> None:
    assert isinstance(leaf, c.TorchGELU | c.RMSNorm)
    assert not leaf.frozen


def test_every_kind_has_a_weight() -> None:
    assert {kind.__name__ for kind in WEIGHTS} == {
        name.removeprefix("module: ") for name in CATALOGUE if name.startswith("module: ")
    }
    assert c.TorchDropout not in ANCHORS


@draws
@given(recipes.delayed_scaling())
def test_delayed_scaling_is_always_delayed(recipe: c.Recipe) -> None:
    assert isinstance(recipe, c.DelayedScaling)


@draws
@given(graphs())
def test_a_graph_whose_input_needs_no_gradient_opens_with_parameters(entrance: Entrance) -> None:
    leaves = [node for node in c.walk(entrance.graph) if isinstance(node, c.Module)]
    # A frozen backbone may come before.
    assert entrance.input_requires_grad or not all(leaf.frozen for leaf in leaves[:2])


@draws
@given(schedules([True, False], mode_sensitive=[0], evaluations=[]))
def test_schedules_respect_what_they_are_told(steps: tuple[c.Step, ...]) -> None:
    assert not any(isinstance(step, c.Evaluate) for step in steps)
    for before, step in pairwise(steps):
        if isinstance(step, c.SetMode) and isinstance(before, c.Forward):
            assert step.module == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: modules([]), "needs kinds"),
        (lambda: modules([int]), "needs kinds"),  # type: ignore[list-item]
        (lambda: schedules([]), "at least one module"),
        (lambda: schedules([True], mode_sensitive=[1]), "no module 1"),
        (lambda: weighted(), "1 to 100 choices"),
        (lambda: weighted((0, "a")), "at least 1"),
        (lambda: rarely(100, st.none(), otherwise=None), "percentage"),
    ],
)
def test_wrong_arguments_are_refused_at_once(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidArgument, match=message):
        make()
