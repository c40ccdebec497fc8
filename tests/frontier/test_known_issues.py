"""Known issues do not rot: each case still shows its fault, and its neighbour none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from harness import known_issues, known_issues_report
from harness.backends import te_version
from harness.beyond import features_beyond
from tests.frontier.known import FOLDER, ISSUES, RULES, SHOWING, saved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.known_issues import Issue, Rule
    from harness.session import Session
    from harness.violations import OracleName


@pytest.mark.parametrize(("issue", "name"), SHOWING)
def test_a_case_shows_its_fault_on_the_releases_that_have_it(
    te_session: Session, issue: Issue, name: str
) -> None:
    verdict = te_session.judge(saved(name).case)
    if issue.affects(te_version()):
        assert issue in known_issues.explain(saved(name).case, verdict.violations, ISSUES), verdict.violations
    else:
        assert issue not in known_issues.explain(saved(name).case, verdict.violations, ISSUES)


@pytest.mark.parametrize(("issue", "rule"), RULES)
def test_the_cases_of_a_rule_show_it_by_each_of_its_oracles(
    te_session: Session, issue: Issue, rule: Rule
) -> None:
    if not issue.affects(te_version()):
        pytest.skip(f"TE {te_version()} has no such fault")
    shown = {evidence for name in rule.cases for evidence in evidence_of(te_session, issue, rule, name)}
    assert shown == {
        *((oracle, "") for oracle in rule.oracles if oracle != "same errors"),
        *(("same errors", part) for part in rule.errors),
    }


def evidence_of(session: Session, issue: Issue, rule: Rule, name: str) -> Iterator[tuple[OracleName, str]]:
    """Yield what a case shows of a rule, which alone explains it: oracles and parts of messages."""
    case = saved(name).case
    violations = session.judge(case).violations
    assert rule.applies(features_beyond(case))
    assert known_issues.explain(case, violations, [msgspec.structs.replace(issue, rule=(rule,))])
    for violation in violations:
        parts = rule.errors if violation.oracle == "same errors" else ("",)
        yield from ((violation.oracle, part) for part in parts if part in violation.message)


@pytest.mark.parametrize(("issue", "rule"), RULES)
def test_a_neighbouring_case_without_the_feature_holds(te_session: Session, issue: Issue, rule: Rule) -> None:
    neighbour = saved(rule.neighbour).case
    features = features_beyond(neighbour)

    assert te_session.judge(neighbour).held
    assert not any(other.applies(features) for other in issue.rule)


def test_every_saved_case_shows_an_issue_or_is_a_neighbour() -> None:
    named = {name for issue in ISSUES for name in issue.cases} | {
        rule.neighbour for issue in ISSUES for rule in issue.rule
    }
    assert {path.stem for path in FOLDER.glob("*.json")} == named


def test_the_page_says_what_the_file_says() -> None:
    page = (FOLDER.parents[1] / "docs" / "known-issues.md").read_text()
    for issue in ISSUES:
        assert known_issues_report.section(issue) in page, issue.id
        assert f"| [{issue.id}](#{issue.id}) | {' to '.join(issue.releases)} |" in page
