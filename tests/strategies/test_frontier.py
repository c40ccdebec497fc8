"""The frontier: every case is valid, and goes beyond the contract by features that have names."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings

from harness import case as c
from harness import record, validity
from harness.beyond import BEYOND, features_beyond
from harness.known_issues import may_be_known
from strategies.contract import contract
from strategies.frontier import TWISTS, frontier

draws = settings(database=None, deadline=None, derandomize=True, max_examples=200)


@draws
@given(frontier())
def test_every_draw_is_a_valid_case_and_survives_json(case: c.Case) -> None:
    validity.check(case)
    assert validity.decode(c.encode(case)) == case


@pytest.mark.parametrize("first", range(len(TWISTS) - 1), ids=lambda number: TWISTS[number].__name__)
def test_every_two_twists_bear_each_other(first: int) -> None:
    for second in TWISTS[first + 1 :]:
        for case in record.draw(contract().flatmap(TWISTS[first]).flatmap(second), 3, seed=1):
            validity.check(case)


@draws
@given(frontier())
def test_gradients_of_a_module_used_again_add_up_in_one_order_with_and_without_a_checkpoint(
    case: c.Case,
) -> None:
    nodes = c.walk(case.graph)
    if any(isinstance(node, c.Reuse) for node in nodes) and any(
        isinstance(node, c.Region) and node.use_reentrant for node in nodes
    ):
        # Each backward comes to gradients that its own forward has cleared.
        steps = [step for step in case.schedule if isinstance(step, c.Forward | c.Backward)]
        for before, step in pairwise(steps):
            assert not (isinstance(before, c.Backward) and isinstance(step, c.Backward))
        assert all(step.losses == 1 for step in steps if isinstance(step, c.Backward))


@draws
@given(contract())
def test_no_case_of_the_contract_goes_beyond_it(case: c.Case) -> None:
    assert not features_beyond(case)


def test_three_thousand_draws_reach_every_feature_beyond_the_contract_mostly_few_at_a_time() -> None:
    found = [features_beyond(case) for case in record.draw(frontier(steered=False), 3000, seed=1)]
    assert {name for names in found for name in names} == set(BEYOND)
    assert sum(1 <= len(names) <= 3 for names in found) > 0.9 * len(found)


def test_the_frontier_steers_away_from_what_is_known_and_goes_on_checking_it() -> None:
    """A case in six or so has the features of no known issue; steered, one in two."""
    shares = [
        sum(may_be_known(case) for case in record.draw(frontier(steered=steered), 200, seed=1)) / 200
        for steered in (False, True)
    ]
    assert shares[0] > 0.75
    assert 0.3 < shares[1] < 0.65
