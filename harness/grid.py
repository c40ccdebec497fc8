"""The grid of a timeline: in which column each event of a run stands, and where in it.

A step of the schedule has a column, and one more whenever a region or a module in it comes again. In a
column the events follow one another from left to right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from harness import case as c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.pairing import Run
    from harness.trace import Event, Phase

Place: TypeAlias = tuple[int, float]
"""A column, and how far in it: from 0 (left) to 1."""


class Grid:
    """Gives each event that is shown, and each run of a region's callable, its place.

    ``steps`` has the step of each event; ``shown`` the numbers of the events that get a place. A run in
    which none is shown gets one itself.
    """

    def __init__(
        self,
        case: c.Case,
        events: Sequence[Event],
        steps: Sequence[int],
        runs: Sequence[Run],
        shown: set[int],
    ) -> None:
        self.columns: dict[int, list[int]] = {}
        """Of each step in which something happened, its columns."""
        self.phases: dict[int, Phase] = {}
        """Of each such step, its phase."""
        self._events = events
        self._steps = steps
        self._inside = _nesting(case.graph)
        shown = shown | {run.start for run in runs if not shown & {*self._extent(run)}}
        self._places: dict[int, Place] = {
            number: (column, (nth + 0.5) / len(members))
            for column, members in enumerate(self._members(shown))
            for nth, number in enumerate(members)
        }

    def at(self, event: int) -> Place:
        """Return the place of an event that is shown."""
        return self._places[event]

    def ends(self, run: Run) -> tuple[Place, Place]:
        """Return the places of the first and the last event of a run."""
        places = [self._places[number] for number in self._extent(run) if number in self._places]
        return places[0], places[-1]

    def _members(self, shown: set[int]) -> list[list[int]]:
        """Make the columns, and return the events shown in each."""
        columns: list[list[int]] = []
        step, met = -1, set[tuple[int, str]]()
        for number, event in enumerate(self._events):
            if event.context:
                continue
            who = event.region, event.module
            if self._steps[number] != step or who in met:
                step, met = self._steps[number], set()
                self.columns.setdefault(step, []).append(len(columns))
                self.phases[step] = event.phase
                columns.append([])
            met.add(who)
            columns[-1] += [number] * (number in shown)
        return columns

    def _extent(self, run: Run) -> range:
        """Return the numbers of the events from the start of a run to its end.

        Of the regions inside, each runs in it once: when one comes again, it is recomputed.
        """
        met: set[int] = set()
        for number in range(run.start, len(self._events)):
            event = self._events[number]
            starts = not event.module and not event.context
            outside = event.region not in self._inside[run.region]
            if outside or self._steps[number] != self._steps[run.start] or (starts and event.region in met):
                return range(run.start, number)
            if starts:
                met.add(event.region)
        return range(run.start, len(self._events))


def _nesting(graph: c.Node) -> dict[int, set[int]]:
    """Return of each region which there are inside it, itself among them."""
    inside: dict[int, set[int]] = {}

    def visit(node: c.Node, around: tuple[int, ...]) -> None:
        if isinstance(node, c.Region):
            around = (*around, len(inside))
            inside[around[-1]] = set()
            for region in around:
                inside[region].add(around[-1])
        for child in c.children(node):
            visit(child, around)

    visit(graph, ())
    return inside
