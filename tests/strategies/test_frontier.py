"""The frontier: every case is valid, and goes beyond the contract by features that have names."""

from __future__ import annotations

from hypothesis import given, settings

from harness import case as c
from harness import record, validity
from harness.beyond import BEYOND, features_beyond
from strategies.contract import contract
from strategies.frontier import frontier

draws = settings(database=None, deadline=None, derandomize=True, max_examples=200)


@draws
@given(frontier())
def test_every_draw_is_a_valid_case_beyond_the_contract_and_survives_json(case: c.Case) -> None:
    validity.check(case)
    assert validity.decode(c.encode(case)) == case
    assert features_beyond(case)


@draws
@given(contract())
def test_no_case_of_the_contract_goes_beyond_it(case: c.Case) -> None:
    assert not features_beyond(case)


def test_two_thousand_draws_reach_every_feature_beyond_the_contract_mostly_few_at_a_time() -> None:
    found = [features_beyond(case) for case in record.draw(frontier(), 2000, seed=1)]
    assert {name for names in found for name in names} == set(BEYOND)
    assert sum(len(names) <= 3 for names in found) > 0.9 * len(found)
