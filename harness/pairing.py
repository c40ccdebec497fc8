"""Who took whose snapshot: of each forward of an FP8 module in a region, what it pushed, popped and owed.

The oracle of that name says whether a call is paired; here every forward is told, in nested regions too.
A recompute's own snapshot is what the module pushed when the region's callable last ran in the same
iteration: in the forward or, inside another region, in that one's recompute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.trace import Event


class Take(NamedTuple):
    """A pop: the snapshot it took, and the one that it should have taken; None where none was pushed."""

    snapshot: int
    own: int | None

    @property
    def wrong(self) -> bool:
        """Whether this is another's snapshot."""
        return self.snapshot != self.own


@dataclass
class Run:
    """One run of a region's callable, and the forwards of modules in it, inner regions' not among them."""

    number: int
    start: int
    """The number of the event with which it starts."""
    region: int
    iteration: int
    forwards: list[Forward] = field(default_factory=list)


@dataclass
class Forward:
    """One forward of an FP8 module in a region: the event's number, and what is to be said of it."""

    event: int
    run: Run
    takes: tuple[Take, ...] = ()
    lacks_pop: bool = False
    """It is a recompute's, and took no snapshot where one was due."""
    lacks_push: bool = False
    """It pushed no snapshot where its recompute was to take one."""


def pair(events: Sequence[Event]) -> tuple[list[Run], list[Forward]]:
    """Return all runs of callables and all forwards of modules, each in their order."""
    runs: list[Run] = []
    forwards: list[Forward] = []
    current: dict[int, Run] = {}
    for number, event in enumerate(events):
        if event.context:
            continue
        if not event.module or event.region not in current:
            current[event.region] = Run(len(runs), number, event.region, event.iteration)
            runs.append(current[event.region])
        if event.module:
            forward = Forward(number, current[event.region])
            current[event.region].forwards.append(forward)
            forwards.append(forward)
    for forward in forwards:
        event = events[forward.event]
        if event.phase == 2:
            _settle(forward, runs, events)
        else:
            forward.takes = tuple(Take(snapshot, None) for snapshot in event.popped)
    return runs, forwards


def _settle(forward: Forward, runs: Sequence[Run], events: Sequence[Event]) -> None:
    """Tell what a recompute's forward took, against what the run before it pushed for it."""
    event = events[forward.event]
    before = _source(forward, runs, events)
    given = [snapshot for source in before for snapshot in events[source.event].pushed]
    nth = _popped_earlier(forward, events)
    own = given[nth : nth + max(len(event.popped), 1)]
    forward.takes = tuple(
        Take(snapshot, own[place] if place < len(own) else None)
        for place, snapshot in enumerate(event.popped)
    )
    forward.lacks_pop = not event.popped and (event.delayed or bool(own))
    if (event.popped or forward.lacks_pop) and not own:
        for source in before:
            source.lacks_push = not events[source.event].pushed


def _source(forward: Forward, runs: Sequence[Run], events: Sequence[Event]) -> list[Forward]:
    """Return the module's forwards in the run whose snapshots are this recompute's.

    That is the last one before in which the module pushed; where it never did, the region's first.
    """
    module = events[forward.event].module
    earlier = [
        [other for other in run.forwards if events[other.event].module == module]
        for run in runs[: forward.run.number]
        if (run.region, run.iteration) == (forward.run.region, forward.run.iteration)
    ]
    pushing = [found for found in earlier if any(events[other.event].pushed for other in found)]
    return pushing[-1] if pushing else next((found for found in earlier if found), [])


def _popped_earlier(forward: Forward, events: Sequence[Event]) -> int:
    """Return how many snapshots the module took before in the same run."""
    module = events[forward.event].module
    same = [events[other.event] for other in forward.run.forwards if other.event < forward.event]
    return sum(len(event.popped) for event in same if event.module == module)
