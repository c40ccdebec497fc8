"""What is known of the frontier: the issues, and the cases saved with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import corpus, known_issues
from harness.known_issues import Issue
from harness.releases import ordered

FOLDER = Path(__file__).parents[2] / "corpus" / "known_issues"
ISSUES = known_issues.load()
PINNED = [pytest.param(issue, name, id=f"{issue.id}-{name}") for issue in ISSUES for name in issue.pinned]


def affects(issue: Issue, release: str) -> bool:
    """Tell whether a release has the fault."""
    first, last = issue.releases
    ends = ordered({first, release, last})
    return (ends[0], ends[-1]) == (first, last)


def saved(name: str) -> corpus.SavedCase:
    """Return a case that was saved with an issue."""
    return corpus.load(FOLDER / f"{name}.json")
