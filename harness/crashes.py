"""Crashes: cases that end the process that judges them, or hang, and how they are made smaller."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from harness.beyond import features_beyond
from harness.corpus import SavedCase, Seen
from harness.errors import HarnessError
from harness.failure import size_of
from harness.outside import Ended, Outside
from harness.reducer import reduce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from harness import case as c
    from harness.corpus import Found
    from harness.target import Target

MOST = 60
"""Smaller cases that are tried: each that crashes as well costs the start of a process."""

_LONGEST_SECONDS = 180.0
"""For making one smaller; a case that hangs does so until its time is over, again and again."""


def crash(case: c.Case, how: str, where: Mapping[str, str], found: Found | None) -> SavedCase:
    """Return a case to save that ended its process in that way."""
    return SavedCase(case=case, why=f"crash: {how}", seen=Seen(ending=how), where=dict(where), found=found)


def shrunk(
    saved: SavedCase, outside: Outside, clock: Callable[[], float] = time.monotonic, most: int = MOST
) -> SavedCase | None:
    """Return the smallest case found, of so many at ``most``, that ends its process in the same way.

    Each is judged in a fresh process. None where the crash does not come again there: it was killed from
    outside, or what ran before it had its part.
    """
    deadline = clock() + _LONGEST_SECONDS
    features = features_beyond(saved.case)

    def crashes_alike(case: c.Case) -> bool:
        if clock() > deadline or not features_beyond(case) <= features:
            return False
        try:
            return outside.judge(case) == Ended(saved.seen.ending)
        except HarnessError:
            return False

    if not crashes_alike(saved.case):
        return None
    smallest = reduce(saved.case, crashes_alike, most)
    if smallest == saved.case:
        return saved
    return msgspec.structs.replace(
        saved, case=smallest, why=f"{saved.why} (made smaller from {saved.case.fingerprint})"
    )


def smallest_of_each_kind(
    crashed: Iterable[SavedCase], target: Target, case_timeout: float
) -> Iterator[SavedCase]:
    """Make the smallest crash of each kind smaller still, and yield what that gives."""
    kinds: dict[str, SavedCase] = {}
    for saved in sorted(crashed, key=lambda saved: size_of(saved.case)):
        kinds.setdefault(saved.seen.ending, saved)
    for saved in kinds.values():
        with Outside(target, case_timeout) as outside:
            smallest = shrunk(saved, outside)
        yield smallest or msgspec.structs.replace(saved, why=f"{saved.why} (not when judged again, alone)")
