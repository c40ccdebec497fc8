"""What a failure is, of what kind, and how large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness.backends import te_version
from harness.known_issues import explain, of_release

if TYPE_CHECKING:
    from harness.known_issues import Issue
    from harness.verdict import Verdict
    from harness.violations import Violation
    from strategies.domains import Domain

_PRIMARY = (
    "same errors", "FIFO drained", "pairing", "recompute count", "global state", "FP8 state", "outputs",
    "input gradients", "parameter gradients", "steady memory",
)  # fmt: skip
"""Oracles by how near to a cause they speak: the first that objects names the kind of a failure."""


class Failure(msgspec.Struct, frozen=True):
    """The smallest case found of one kind of failure, and what the oracles say of it."""

    kind: str
    case: c.Case
    verdict: Verdict


def known_in(domain: Domain) -> tuple[Issue, ...]:
    """Return the known issues that may explain a violation in a domain: none where equality is promised."""
    return () if domain.promised else of_release(te_version())


def kind_of(case: c.Case, verdict: Verdict, issues: Sequence[Issue] = ()) -> str | None:
    """Return the kind of a failure: the signature of the violation nearest to its cause.

    None if the case held, or shows a known issue: neither is news.
    """
    if verdict.held or explain(case, verdict.violations, issues):
        return None
    return signature_of(verdict.violations)


def signature_of(violations: Iterable[Violation]) -> str:
    """Return the signature of the violation nearest to its cause, of those that there are."""
    return min(violations, key=lambda violation: _PRIMARY.index(violation.oracle)).signature


def size_of(case: c.Case) -> tuple[int, bytes]:
    """Return what orders cases from small to large: their JSON, by length first."""
    encoded = c.encode(case)
    return len(encoded), encoded
