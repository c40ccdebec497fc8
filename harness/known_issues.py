"""Known issues: faults of Transformer Engine that are understood, and the rules by which a violation is one.

The file of issues is data. A rule names features of a case and oracles: it matches a verdict whose case has
all of those features, where no other oracle objects.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.beyond import BEYOND, features_beyond
from harness.errors import HarnessFault
from harness.violations import OracleName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import case as c
    from harness.verdict import Verdict

FILE = Path(__file__).with_name("known_issues.toml")


class Issue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known fault: what a user sees, where it comes from, and what tells it."""

    id: str
    sentence: str
    mechanism: str
    releases: tuple[str, str]
    """The first and the last release that have it."""
    features: tuple[str, ...]
    oracles: tuple[OracleName, ...]
    pinned: tuple[str, ...]
    """Fingerprints of the cases in the corpus that show it, the plainest first."""
    upstream: str = ""

    def matches(self, case: c.Case, verdict: Verdict) -> bool:
        """Tell whether a violated case shows this fault, and nothing that is not known of it."""
        fired = {violation.oracle for violation in verdict.violations}
        return bool(fired) and fired <= {*self.oracles} and {*self.features} <= features_beyond(case)


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
        for name in issue.features:
            if name not in BEYOND:
                raise HarnessFault(f"{path}: {issue.id}: there is no feature {name!r}")
    return tuple(issues)


def explain(case: c.Case, verdict: Verdict, issues: Sequence[Issue] | None = None) -> Issue | None:
    """Return the first known issue that a violated case shows, or None for a new one."""
    known = _known() if issues is None else issues
    return next((issue for issue in known if issue.matches(case, verdict)), None)


@cache
def _known() -> tuple[Issue, ...]:
    return load()
