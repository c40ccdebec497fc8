"""Minimize: the smallest case that is violated in the same way as a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.beyond import features_beyond
from harness.errors import ReleaseLacks
from harness.failure import Failure, kind_of
from harness.known_issues import explain
from harness.reducer import reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import case as c
    from harness.known_issues import Issue
    from harness.session import Session


class Minimizer:
    """Makes a failure smaller; ``smallest`` is the smallest so far, also where it was interrupted.

    Where the known issues do not explain the failure, they do not explain a smaller one either.
    """

    def __init__(
        self, session: Session, failure: Failure, issues: Sequence[Issue], on_case: Callable[[int], None]
    ) -> None:
        self.smallest = failure
        known = explain(failure.case, failure.verdict.violations, issues)
        self._issues = () if known else issues
        self.tried = 0
        self._session = session
        self._features = features_beyond(failure.case)
        self._on_case = on_case

    def run(self, most: int | None) -> None:
        """Try smaller cases, ``most`` at most, until none of them is violated in the same way."""
        reduce(self.smallest.case, self._is_violated_alike, most)

    def _is_violated_alike(self, case: c.Case) -> bool:
        """Judge a smaller case; with a feature beyond the contract that the first lacks it is another one."""
        self.tried += 1
        self._on_case(self.tried)
        if not features_beyond(case) <= self._features:
            return False
        try:
            verdict = self._session.judge(case)
        except ReleaseLacks:
            return False
        if kind_of(case, verdict, self._issues) != self.smallest.kind:
            return False
        self.smallest = Failure(self.smallest.kind, case, verdict)
        return True
