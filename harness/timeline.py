"""The timeline of a checkpointed run: rows of modules, bands of steps, marks of pushes and pops, arrows.

Plain data, made from a case, the trace with its close-up, and the verdict. How it looks is for others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from harness import case as c
from harness.errors import HarnessFault
from harness.grid import Grid
from harness.pairing import pair

if TYPE_CHECKING:
    from harness.pairing import Forward, Run
    from harness.trace import Closeup, Event, Phase, RunError, Trace
    from harness.verdict import Verdict
    from harness.violations import Violation

Kind: TypeAlias = Literal["push", "pop", "no push", "no pop", "run"]
"""What a forward of a module did: "no" where that was due, "run" where nothing was."""

_TITLES = {
    "Forward": "forward",
    "Backward": "backward",
    "Evaluate": "evaluation",
    "Abandon": "dropping forward",
}


@dataclass(frozen=True)
class Mark:
    """A push, a pop, or their absence, in one forward of a module.

    ``place`` says where in its column it stands, from 0 (left) to 1. ``own`` is the snapshot that a pop
    should have taken. ``restored`` is told of pops only, and None where the forward raised. ``misrun`` says
    how the module ran otherwise than the case has it; ``raised`` which type of error ended the run here.
    """

    row: int
    column: int
    place: float
    kind: Kind
    snapshot: int | None = None
    own: int | None = None
    restored: bool | None = None
    wrong: bool = False
    misrun: str = ""
    raised: str = ""


@dataclass(frozen=True)
class Arrow:
    """From a pop to the push of the snapshot that it took or, where that was another's, should have taken."""

    taker: Mark
    giver: Mark
    kind: Literal["own", "wrong", "due"]


@dataclass(frozen=True)
class Left:
    """A snapshot in a queue at the end, -1 where its push was not seen.

    It is ``wrong`` where no backward is to come that would take it.
    """

    snapshot: int
    wrong: bool


@dataclass(frozen=True)
class Row:
    """A region, or a module of the region above it: then with its class, and with its queue at the end.

    Of modules in no region only the queue at the end is known. ``unseen`` lists the
    snapshots that left the queue while no forward of the module ran.
    """

    region: int
    name: str
    is_module: bool
    left: tuple[Left, ...] = ()
    unseen: tuple[int, ...] = ()

    @property
    def full_name(self) -> str:
        """What tells this row from all others."""
        if not self.is_module:
            return self.name
        return f"{self.name} of region {self.region}" if self.region >= 0 else f"{self.name}, in no region"


@dataclass(frozen=True)
class Bar:
    """One run of a region's callable: from one column and place in it to another."""

    row: int
    start: tuple[int, float]
    end: tuple[int, float]
    recompute: bool


@dataclass(frozen=True)
class Band:
    """A step of the schedule: its columns are numbered through the whole timeline, and it may have none."""

    step: int
    title: str
    iteration: int | None
    phase: Phase
    columns: tuple[int, ...]
    reached: bool
    first_flags: int = 0
    """Length of the list of first-module flags after it."""

    @property
    def full_title(self) -> str:
        """The title with its iteration, for a sentence."""
        return self.title if self.iteration is None else f"{self.title} of iteration {self.iteration}"


@dataclass(frozen=True)
class Timeline:
    """All that there is to draw."""

    rows: tuple[Row, ...]
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...]
    arrows: tuple[Arrow, ...]
    bars: tuple[Bar, ...]
    violations: tuple[Violation, ...]
    error: RunError | None
    raised_directly: bool
    """Whether the direct run ended in an error too."""
    flags_left: int
    """First-module flags left over at the last standstill, where the run came to its end."""

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return sum(len(band.columns) for band in self.bands)

    @property
    def is_right(self) -> bool:
        """Whether nothing in it is as it should not be."""
        wrong = any(mark.wrong or mark.restored is False for mark in self.marks)
        return (
            not wrong
            and not self.flags_left
            and not any(left.wrong for row in self.rows for left in row.left)
        )

    def band_of(self, mark: Mark) -> Band:
        """Return the band that a mark stands in."""
        return next(band for band in self.bands if mark.column in band.columns)

    def giver(self, snapshot: int | None) -> Mark | None:
        """Return the push of a snapshot, if it was seen."""
        pushes = (mark for mark in self.marks if mark.kind == "push")
        return next((mark for mark in pushes if mark.snapshot == snapshot), None)


def make_timeline(case: c.Case, trace: Trace, verdict: Verdict) -> Timeline:
    """Return the timeline of the checkpointed run of a case.

    Raises HarnessFault where the trace has no close-up.
    """
    if trace.closeup is None:
        raise HarnessFault("a timeline needs the close-up of a run")
    runs, forwards = pair(trace.events)
    rows, places = _rows(case, trace, trace.closeup)
    shown = [forward for forward in forwards if trace.events[forward.event].module in places]
    grid = Grid(case, trace.events, trace.closeup.steps, runs, {forward.event for forward in shown})
    marks = tuple(
        mark
        for forward in shown
        for mark in _marks(forward, trace, places[trace.events[forward.event].module], grid)
    )
    return Timeline(
        rows=rows,
        bands=_bands(case, trace, trace.closeup, grid),
        marks=marks,
        arrows=_arrows(marks),
        bars=tuple(_bar(run, trace, rows, grid) for run in runs),
        violations=verdict.violations,
        error=trace.error,
        raised_directly=verdict.direct_error is not None,
        flags_left=trace.standstills[-1].first_flags if trace.standstills and not trace.error else 0,
    )


# --- Rows and bands ----------------------------------------------------------------------------------


def _rows(case: c.Case, trace: Trace, closeup: Closeup) -> tuple[tuple[Row, ...], dict[str, int]]:
    """Return a row for each region, those of its modules that have to do with snapshots, and their places."""
    concerned = {
        event.module: event.region
        for event in trace.events
        if event.module and (event.delayed or event.meant or event.pushed or event.popped)
    }
    rows: list[Row] = []
    places: dict[str, int] = {}
    for region in range(len(c.regions(case))):
        rows.append(Row(region, f"region {region}", is_module=False))
        for module in (name for name, inside in concerned.items() if inside == region):
            places[module] = len(rows)
            rows.append(_module_row(module, region, trace, closeup))
    elsewhere = closeup.left_elsewhere
    rows += [Row(-1, "in no region", is_module=False)] * bool(elsewhere)
    for path, length in elsewhere.items():
        rows.append(Row(-1, path, is_module=True, left=(Left(-1, wrong=trace.error is None),) * length))
    return tuple(rows), places


def _module_row(module: str, region: int, trace: Trace, closeup: Closeup) -> Row:
    iteration = {snapshot: event.iteration for event in trace.events for snapshot in event.pushed}
    own = [event for event in trace.events if event.module == module]
    left = closeup.left.get(module, ())
    moved = {snapshot for event in own for snapshot in event.popped} | {*left}
    # The backward in which a run stopped is not pending any more, and never came to its end.
    waiting = {*closeup.pending} | ({trace.error.iteration} if trace.error else set())
    path = module.partition(": ")[2]
    return Row(
        region=region,
        name=f"{closeup.modules.get(module, 'module')} {path}".strip(),
        is_module=True,
        left=tuple(Left(snapshot, iteration.get(snapshot) not in waiting) for snapshot in left),
        unseen=tuple(snapshot for event in own for snapshot in event.pushed if snapshot not in moved),
    )


def _bands(case: c.Case, trace: Trace, closeup: Closeup, grid: Grid) -> tuple[Band, ...]:
    last = len(case.schedule) if trace.error is None else trace.error.step
    return tuple(
        Band(
            step=number,
            title=_title(step),
            iteration=closeup.iterations.get(number),
            phase=grid.phases.get(number, 1),
            columns=tuple(grid.columns.get(number, ())),
            reached=number <= last,
            first_flags=closeup.first_flags.get(number, 0),
        )
        for number, step in enumerate(case.schedule)
    )


def _title(step: c.Step) -> str:
    """Name a step, of whatever kind: by what it is called, and by what is not as usual."""
    kind = type(step).__name__
    if isinstance(step, c.SetMode):
        return f"module {step.module} to {'train' if step.training else 'eval'}"
    return _TITLES.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()


# --- Bars, marks and arrows --------------------------------------------------------------------------------


def _bar(run: Run, trace: Trace, rows: tuple[Row, ...], grid: Grid) -> Bar:
    row = next(number for number, row in enumerate(rows) if row.region == run.region)
    return Bar(row, *grid.ends(run), recompute=trace.events[run.start].phase == 2)


def _marks(forward: Forward, trace: Trace, row: int, grid: Grid) -> list[Mark]:
    """Return the marks of one forward: its pops first, since that is the order in which TE works."""
    event = trace.events[forward.event]
    column, place = grid.at(forward.event)
    how = _misrun(event)
    restored = trace.closeup.restored.get(forward.event) if trace.closeup else None
    marks = [
        Mark(row, column, place, "pop", take.snapshot, take.own, restored, take.wrong or bool(how), how)
        for take in forward.takes
    ]
    if forward.lacks_pop:
        stopped = trace.error is not None and forward.event == len(trace.events) - 1
        raised = trace.error.type if trace.error is not None and stopped else ""
        marks.append(Mark(row, column, place, "no pop", wrong=True, misrun=how, raised=raised))
    marks += [Mark(row, column, place, "push", s, wrong=bool(how), misrun=how) for s in event.pushed]
    if forward.lacks_push:
        marks.append(Mark(row, column, place, "no push", wrong=True, misrun=how))
    return marks or [Mark(row, column, place, "run", wrong=bool(how), misrun=how)]


def _misrun(event: Event) -> str:
    if event.meant is None or event.meant == event.delayed:
        return ""
    how, has = ("without", "has") if event.meant else ("with", "has not")
    return f"ran {how} delayed scaling, where the case {has} it"


def _arrows(marks: tuple[Mark, ...]) -> tuple[Arrow, ...]:
    pushes = {mark.snapshot: mark for mark in marks if mark.kind == "push"}
    arrows: list[Arrow] = []
    for mark in marks:
        if mark.kind != "pop":
            continue
        if mark.snapshot in pushes:
            arrows.append(Arrow(mark, pushes[mark.snapshot], "own" if mark.own == mark.snapshot else "wrong"))
        if mark.own != mark.snapshot and mark.own in pushes:
            arrows.append(Arrow(mark, pushes[mark.own], "due"))
    return tuple(arrows)
