"""Known issues: faults of Transformer Engine that are understood, and the rules by which a violation is one.

The file of issues is data. A rule names features of a case and oracles: it tells that in a case with all of
those features, those oracles may object.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.version import Version

from harness.beyond import BEYOND, features_beyond
from harness.errors import HarnessFault
from harness.violations import OracleName, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import case as c

FILE = Path(__file__).with_name("known_issues.toml")


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What tells a fault: features that a case has, all of them, and the oracles that may object."""

    features: tuple[str, ...]
    oracles: tuple[OracleName, ...]
    errors: tuple[str, ...] = ()
    """Parts of messages, one of which an error has where the oracle "same errors" objects."""
    pinned: tuple[str, ...]
    """Fingerprints of cases in the corpus that show it, the plainest first, each with a short script."""
    evidence: tuple[str, ...] = ()
    """Further ones, whose scripts are longer, by which it shows in ways that the pinned ones do not."""
    neighbour: str
    """Fingerprint of a case in the corpus like the plainest one, but without the features: it holds."""

    @property
    def cases(self) -> tuple[str, ...]:
        """All cases that show it: together, by each of its oracles and parts of messages."""
        return (*self.pinned, *self.evidence)

    def applies(self, features: frozenset[str]) -> bool:
        """Tell whether a case with these features may show the fault."""
        return {*self.features} <= features

    def covers(self, violation: Violation) -> bool:
        """Tell whether a violation is one that the fault leads to."""
        if violation.oracle not in self.oracles:
            return False
        return violation.oracle != "same errors" or any(part in violation.message for part in self.errors)


class Issue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known fault: what a user sees, where it comes from, and what tells it."""

    id: str
    sentence: str
    mechanism: str
    releases: tuple[str, str]
    """The first and the last release that have it."""
    rule: tuple[Rule, ...]
    """Any of these tells it."""
    upstream: str = ""

    @property
    def pinned(self) -> tuple[str, ...]:
        """The pinned cases of all its rules, each once."""
        return tuple(dict.fromkeys(name for rule in self.rule for name in rule.pinned))

    @property
    def cases(self) -> tuple[str, ...]:
        """All cases that show it, each once."""
        return tuple(dict.fromkeys(name for rule in self.rule for name in rule.cases))

    def affects(self, release: str) -> bool:
        """Tell whether a release has the fault."""
        first, last = map(Version, self.releases)
        return first <= Version(release) <= last


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    issue: list[Issue] = []


def load(path: Path = FILE) -> tuple[Issue, ...]:
    """Return all known issues, in the order of the file.

    Raises HarnessFault for a file that is not well-formed, an id that comes twice, or an unknown feature.
    """
    try:
        issues = msgspec.toml.decode(path.read_bytes(), type=_File).issue
    except msgspec.MsgspecError as error:
        raise HarnessFault(f"{path}: {error}") from error
    for number, issue in enumerate(issues):
        if any(issue.id == other.id for other in issues[:number]):
            raise HarnessFault(f"{path}: {issue.id} comes twice")
        for name in (name for rule in issue.rule for name in rule.features):
            if name not in BEYOND:
                raise HarnessFault(f"{path}: {issue.id}: there is no feature {name!r}")
    return tuple(issues)


def of_release(release: str) -> tuple[Issue, ...]:
    """Return the known issues that a release of Transformer Engine has."""
    return tuple(issue for issue in _known() if issue.affects(release))


def explain(case: c.Case, violations: Sequence[Violation], issues: Sequence[Issue]) -> tuple[Issue, ...]:
    """Return a few of the issues that explain all of a case's violations; none for a new fault.

    Every violation must be one that some issue, whose features the case has, leads to. What explains most of
    what is left comes first; of those that explain the same, the first is taken.
    """
    features = features_beyond(case)
    possible = {issue: [rule for rule in issue.rule if rule.applies(features)] for issue in issues}
    open_ = list(violations)
    found: list[Issue] = []
    while open_:
        covered = {
            issue: [violation for violation in open_ if any(rule.covers(violation) for rule in rules)]
            for issue, rules in possible.items()
        }
        issue = max(covered, key=lambda issue: len(covered[issue]), default=None)
        if issue is None or not covered[issue]:
            return ()
        found.append(issue)
        open_ = [violation for violation in open_ if violation not in covered[issue]]
    return tuple(found)


def may_be_known(case: c.Case) -> bool:
    """Tell whether a case has the features of a known issue."""
    features = features_beyond(case)
    return any(rule.applies(features) for issue in _known() for rule in issue.rule)


@cache
def _known() -> tuple[Issue, ...]:
    return load()
