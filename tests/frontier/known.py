"""What is known of the frontier: the issues, and the cases saved with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import corpus, known_issues

FOLDER = Path(__file__).parents[2] / "corpus" / "known_issues"
ISSUES = known_issues.load()
RULES = [
    pytest.param(issue, rule, id=f"{issue.id}-{'-'.join(rule.features).replace(' ', '_')}")
    for issue in ISSUES
    for rule in issue.rule
]
SHOWING = [pytest.param(issue, name, id=f"{issue.id}-{name}") for issue in ISSUES for name in issue.cases]


def saved(name: str) -> corpus.SavedCase:
    """Return a case that was saved with an issue."""
    return corpus.load(FOLDER / f"{name}.json")
