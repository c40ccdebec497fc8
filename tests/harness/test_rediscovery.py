"""Rediscovery: when each known issue is met again."""

from __future__ import annotations

from harness import case as c
from harness import known_issues, rediscovery
from harness.verdict import Verdict
from harness.violations import Violation

PLAIN = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
NESTED = c.Case(graph=c.Autocast(c.Region(c.Region(c.Linear()))), schedule=(c.Forward(), c.Backward()))


def judge(case: c.Case) -> Verdict:
    left = Violation(oracle="FIFO drained", iteration=0, message="x")
    return Verdict(fingerprint=case.fingerprint, violations=(left,) if case == NESTED else ())


def test_an_issue_is_met_by_the_first_case_that_shows_it() -> None:
    assert rediscovery.first_cases(judge, [PLAIN, NESTED, PLAIN, NESTED]) == {"nested-regions": 2}


def test_the_median_is_over_all_seeds_and_none_where_most_did_not_meet_it() -> None:
    found = [{"a": 3}, {"a": 9}, {"a": 5}, {"b": 1}]
    assert rediscovery.median_case(found, "a", most=10) == 9
    assert rediscovery.median_case(found, "b", most=10) is None


def test_an_issue_is_known_on_its_releases_alone() -> None:
    names = {issue.id for issue in known_issues.of_release("2.10.0")}
    assert "nested-regions" in names
    assert "recomputing-microbatch" not in names
    assert known_issues.of_release("99.0") == ()
