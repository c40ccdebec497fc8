"""A watchdog finds what hangs: it looks, now and then, at what other processes are judging."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.inflight import Flight

_LONGEST_LOOK_SECONDS = 2.0
"""Between two looks, where all goes well. A watchdog that was stopped for longer may have been stopped with
those that it looks at: that is nobody's hanging."""

_Who = TypeVar("_Who")


class Watchdog(Generic[_Who]):
    """Tells whose case takes too long.

    Args:
        most: seconds after which a case is taken to hang.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._looked = time.monotonic()
        # Of each process, since when it judges its case, and for how many seconds it was seen to.
        self._seen: dict[_Who, tuple[float, float]] = {}

    def look(self, flights: Iterable[tuple[_Who, Flight]]) -> list[tuple[_Who, Flight]]:
        """Return those whose case takes too long, of all that are judging one now."""
        now = time.monotonic()
        passed = min(now - self._looked, _LONGEST_LOOK_SECONDS)
        self._looked = now
        before, self._seen = self._seen, {}
        hanging = []
        for who, flight in flights:
            since, judged = before.get(who, (flight.since, 0.0))
            judged = judged + passed if since == flight.since else 0.0
            self._seen[who] = flight.since, judged
            if judged > self._most:
                hanging.append((who, flight))
        return hanging
