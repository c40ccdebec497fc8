"""A timeline in a terminal: a table, cut into several where it is too wide. Words say what colours show."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.files import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.timeline import Band, Mark, Row, Timeline

_RIGHT, _WRONG, _QUIET = "green", "bold red", "dim"
_HEADING, _NAME = 11, 26
"""Letters of a heading, and of a module's name, on a line."""
_LEGEND = (
    "push N: the module puts snapshot N of its scales into its queue.",
    "pop N: its recompute takes snapshot N from there; restored: the live scales are back afterwards.",
    "!: this should not be; own N: the snapshot that it should have taken.",
)


class _Column(NamedTuple):
    """A column of the table: its heading, and a cell for each row of the timeline."""

    heading: str
    cells: list[Text]
    style: str = ""

    @property
    def heading_lines(self) -> list[str]:
        """The heading, broken between words where it is long."""
        return [
            line
            for part in self.heading.splitlines()
            for line in wrap(part, _HEADING, break_long_words=False)
        ]

    @property
    def width(self) -> int:
        """How many letters wide it is, with the space around it."""
        lines = [*self.heading_lines, *(line.plain for cell in self.cells for line in cell.split())]
        return max(map(len, lines), default=0) + 2


def print_timeline(timeline: Timeline, console: Console | None = None) -> None:
    """Print a timeline and what its words mean."""
    console = console or Console()
    if not timeline.rows:
        return
    flags = [Text("first-module flags")] * bool(timeline.flags_left)
    names = _Column("", [_name(row) for row in timeline.rows] + flags)
    for columns in _parts(list(_columns(timeline)), console.width - names.width - 1):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for column in (names, *columns):
            table.add_column(
                Text("\n".join(column.heading_lines)), style=column.style, no_wrap=True, vertical="top"
            )
        for number in range(len(names.cells)):
            table.add_row(
                *(column.cells[number] for column in (names, *columns)), end_section=_ends(timeline, number)
            )
        console.print(table)
        console.print()
    for line in _LEGEND:
        console.print(line, style=_QUIET, markup=False, highlight=False, soft_wrap=True)


def _ends(timeline: Timeline, row: int) -> bool:
    """Whether a row is the last module of a region."""
    modules = [row.is_module for row in timeline.rows]
    return row < len(modules) and modules[row] and not any(modules[row + 1 : row + 2])


def _parts(columns: list[_Column], room: int) -> Iterator[list[_Column]]:
    """Yield as many columns at a time as fit, and at least one."""
    part: list[_Column] = []
    for column in columns:
        if part and sum(other.width for other in part) + column.width > room:
            yield part
            part = []
        part.append(column)
    yield part


# --- Columns -----------------------------------------------------------------------------------------


def _columns(timeline: Timeline) -> Iterator[_Column]:
    for band in timeline.bands:
        if not band.reached:
            continue
        if not band.columns:
            yield _Column(_heading(band), [Text(":") for _ in timeline.rows] + _flags(timeline, band), _QUIET)
        for nth, column in enumerate(band.columns):
            heading = _heading(band) + (" again" if nth else "")
            cells = [_cell(timeline, row, column) for row in range(len(timeline.rows))]
            flags = _flags(timeline, band if column == band.columns[-1] else None)
            yield _Column(heading, cells + flags)
    if timeline.error is not None:
        yield _Column(
            f"stopped:\n{printable(timeline.error.type)}", [Text("x", _WRONG) for _ in timeline.rows]
        )
    flags = [Text(f"{timeline.flags_left} !", _WRONG)] * bool(timeline.flags_left)
    yield _Column("left in\nqueue", [_left(row) for row in timeline.rows] + flags)


def _flags(timeline: Timeline, band: Band | None) -> list[Text]:
    """Return the cell of the last row, where there is one: how many flags there are after a step."""
    if not timeline.flags_left:
        return []
    return [Text("" if band is None else str(band.first_flags))]


def _heading(band: Band) -> str:
    return band.title if band.iteration is None else f"{band.title} {band.iteration}"


def _name(row: Row) -> Text:
    name = printable(row.name)
    if not row.is_module:
        return Text(name, "bold")
    if len(name) > _NAME and " " in name:
        kind, path = name.split(" ", 1)
        return Text(f"  {kind}\n   {path if len(path) <= _NAME else '..' + path[-_NAME:]}")
    return Text(f"  {name}")


# --- Cells -------------------------------------------------------------------------------------------


def _cell(timeline: Timeline, row: int, column: int) -> Text:
    if not timeline.rows[row].is_module:
        bars = [bar for bar in timeline.bars if bar.row == row and bar.start[0] <= column <= bar.end[0]]
        return Text("\n").join(Text("recompute" if bar.recompute else "runs", _QUIET) for bar in bars)
    marks = [mark for mark in timeline.marks if (mark.row, mark.column) == (row, column)]
    return Text("\n").join(line for mark in marks for line in _lines(mark))


def _lines(mark: Mark) -> Iterator[Text]:
    if mark.kind == "run" and not mark.wrong:
        yield Text("-", _QUIET)
        return
    what = mark.kind if mark.snapshot is None else f"{mark.kind} {mark.snapshot}"
    right = _RIGHT if mark.kind == "pop" else ""
    yield Text(f"{what} !" if mark.wrong else what, _WRONG if mark.wrong else right)
    if mark.kind == "pop" and mark.wrong:
        yield Text(f"own {'none' if mark.own is None else mark.own}", "red")
    if mark.kind == "no pop":
        yield Text(printable(mark.raised or "took none"), "red")
    if mark.misrun:
        yield Text("ran otherwise", "red")
    if mark.restored is not None:
        yield Text("restored", _QUIET) if mark.restored else Text("not restored !", _WRONG)


def _left(row: Row) -> Text:
    if not row.is_module:
        return Text("")
    names = ["one" if left.snapshot < 0 else str(left.snapshot) for left in row.left]
    lines = [Text(name + " !" * left.wrong) for name, left in zip(names, row.left, strict=True)]
    for line, left in zip(lines, row.left, strict=True):
        line.stylize(_WRONG if left.wrong else "")
    if row.unseen:
        lines.append(Text(f"({', '.join(map(str, row.unseen))} taken elsewhere)", _QUIET))
    return Text("\n").join(lines) if lines else Text("empty", _QUIET)
