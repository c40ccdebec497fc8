"""Again: what has become, here and now, of the finds that others have shared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from harness.corpus import Seen, seen_of
from harness.errors import CannotRunHere, HarnessFault
from harness.failure import kind_of, known_in, size_of
from harness.finds import kind_seen, may_be_removed
from harness.outside import Ended, Outside
from harness.plan import Again

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.corpus import SavedCase
    from harness.finds import Finds
    from harness.known_issues import Issue
    from harness.plan import Plan
    from harness.target import Target
    from harness.verdict import Verdict

LONGEST_SECONDS = 60.0
"""After which no further find is judged: a campaign is there to find others."""


def concerning(finds: Sequence[SavedCase], target: Target) -> list[SavedCase]:
    """Return the finds that say something of a target: those of the same checkpointer and TE mode."""
    mine = {"te_mode": target.te_mode, "checkpointer": target.checkpointer or "te.checkpoint"}
    return [saved for saved in finds if all(saved.where.get(name, own) == own for name, own in mine.items())]


def beside(again: Again, cases: Sequence[SavedCase]) -> dict[str, SavedCase]:
    """Return the finds that fail, without the kinds of which a campaign has a case that is no larger."""
    by_size = sorted(cases, key=lambda saved: size_of(saved.case), reverse=True)
    smallest = {kind_seen(saved): saved for saved in by_size}
    return {
        kind: saved
        for kind, saved in again.failing.items()
        if kind not in smallest or size_of(saved.case) < size_of(smallest[kind].case)
    }


def judge_again(
    finds: Finds,
    shared: Sequence[SavedCase],
    plan: Plan,
    complain: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
) -> Again:
    """Judge finds in a process of their own, and remove from the database those that are fixed.

    Raises InvalidInput where the target cannot be opened.
    """
    from strategies.domains import DOMAINS

    again = Again()
    issues = known_in(DOMAINS[plan.domain])
    deadline = clock() + LONGEST_SECONDS
    with Outside(plan.target, plan.case_timeout) as outside:
        for saved in shared:
            if clock() > deadline:
                again.not_judged += 1
                continue
            try:
                answer = outside.judge(saved.case)
            except CannotRunHere:
                again.not_run += 1
                continue
            except HarnessFault as fault:
                # Ending every campaign of a fleet is not for one case of a stranger to do.
                again.not_judged += 1
                complain(f"database: {saved.case.fingerprint}: {fault}")
                continue
            kind = _kind(saved, answer, issues)
            if kind is not None:
                again.fail(kind, _as_seen(saved, answer, outside.where))
            elif is_fixed(saved, answer, outside.where) and finds.remove(plan.domain, saved):
                again.removed += 1
            else:
                again.held += 1
    return again


def _kind(saved: SavedCase, answer: Verdict | Ended, issues: Sequence[Issue]) -> str | None:
    if isinstance(answer, Ended):
        return f"crash: {answer.how}"
    return kind_of(saved.case, answer, issues)


def is_fixed(saved: SavedCase, answer: Verdict | Ended, where: Mapping[str, str]) -> bool:
    """Tell whether a find holds, and was judged so that it need not be kept for others."""
    # Where both runs raise alike, next to nothing was compared.
    holds = not isinstance(answer, Ended) and answer.held and answer.direct_error is None
    return holds and may_be_removed(saved, where)


def _as_seen(saved: SavedCase, answer: Verdict | Ended, where: Mapping[str, str]) -> SavedCase:
    """Return a find as a case that was seen to fail here."""
    seen = Seen(ending=answer.how) if isinstance(answer, Ended) else seen_of(answer)
    return msgspec.structs.replace(saved, seen=seen, where=dict(where))
