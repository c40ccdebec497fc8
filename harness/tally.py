"""The tally of a campaign: how many cases there were of what."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from harness.beyond import features_beyond
from harness.features import features
from harness.known_issues import explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import case as c
    from harness.known_issues import Issue
    from harness.verdict import Verdict


class Tally(msgspec.Struct):
    """Counts over a campaign. ``cases`` are those judged; ``lacking`` counts the others by what they need."""

    cases: int = 0
    lacking: Counter[str] = msgspec.field(default_factory=Counter)
    seconds: float = 0.0
    features: Counter[str] = msgspec.field(default_factory=Counter)
    oracles: Counter[str] = msgspec.field(default_factory=Counter)
    violations: Counter[str] = msgspec.field(default_factory=Counter)
    known: Counter[str] = msgspec.field(default_factory=Counter)
    raised: int = 0
    """Cases in which both runs raised alike: they hold, for what they are worth."""

    def count(self, case: c.Case, verdict: Verdict, issues: Sequence[Issue] = ()) -> None:
        """Add one judged case; one that shows a known issue counts as that, and not its violations."""
        self.cases += 1
        self.raised += verdict.held and verdict.direct_error is not None
        self.features.update(features(case))
        self.features.update(features_beyond(case))
        self.oracles.update(verdict.evaluated)
        known = explain(case, verdict.violations, issues)
        if known:
            self.known.update(issue.id for issue in known)
        else:
            self.violations.update({violation.oracle for violation in verdict.violations})

    @property
    def drawn(self) -> int:
        """How many cases were drawn, those that cannot run here among them."""
        return self.cases + self.lacking.total()

    def take_back(self, counted: Tally) -> None:
        """Take counts off that were added: what they count is to be judged anew."""
        self.cases -= counted.cases
        self.raised -= counted.raised
        self.lacking -= counted.lacking
        self.features -= counted.features
        self.oracles -= counted.oracles
        self.violations -= counted.violations
        self.known -= counted.known

    def add(self, more: Tally) -> None:
        """Add the counts of another tally; the time is the campaign's, and stays."""
        self.cases += more.cases
        self.raised += more.raised
        self.lacking.update(more.lacking)
        self.features.update(more.features)
        self.oracles.update(more.oracles)
        self.violations.update(more.violations)
        self.known.update(more.known)
