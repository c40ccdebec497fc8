"""Known issues do not rot: each pinned case still shows its fault, and its neighbour none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import known_issues, known_issues_report
from harness.backends import te_version
from harness.beyond import features_beyond
from tests.frontier.known import FOLDER, ISSUES, PINNED, saved

if TYPE_CHECKING:
    from harness.known_issues import Issue
    from harness.session import Session


@pytest.mark.parametrize(("issue", "name"), PINNED)
def test_a_pinned_case_shows_its_fault_on_the_releases_that_have_it(
    te_session: Session, issue: Issue, name: str
) -> None:
    verdict = te_session.judge(saved(name).case)
    if issue.affects(te_version()):
        assert issue in known_issues.explain(saved(name).case, verdict.violations, ISSUES), verdict.violations
    else:
        assert issue not in known_issues.explain(saved(name).case, verdict.violations, ISSUES)


@pytest.mark.parametrize("issue", ISSUES, ids=lambda issue: issue.id)
def test_a_neighbouring_case_without_the_feature_holds(te_session: Session, issue: Issue) -> None:
    neighbour = saved(issue.neighbour).case
    features = features_beyond(neighbour)

    assert te_session.judge(neighbour).held
    assert not any(rule.applies(features) for rule in issue.rule)


def test_every_rule_is_met_by_a_pinned_case() -> None:
    for issue in ISSUES:
        features = [features_beyond(saved(name).case) for name in issue.pinned]
        for rule in issue.rule:
            assert any(rule.applies(names) for names in features), f"{issue.id}: {rule.features}"


def test_every_saved_case_is_pinned_or_a_neighbour() -> None:
    named = {name for issue in ISSUES for name in (*issue.pinned, issue.neighbour)}
    assert {path.stem for path in FOLDER.glob("*.json")} == named


def test_the_page_says_what_the_file_says() -> None:
    page = (FOLDER.parents[1] / "docs" / "known-issues.md").read_text()
    for issue in ISSUES:
        assert known_issues_report.section(issue) in page, issue.id
        assert f"| [{issue.id}](#{issue.id}) | {' to '.join(issue.releases)} |" in page
