"""A timeline as a picture: SVG elements, whose colours are left to the classes of the page around them.

Rows go down, time goes right. Arcs above a row lead from a pop to the push that it took; below, broken, to
the one that it should have taken. A dotted line leads from a push to what is left of it at the end.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from harness.timeline_signs import CHIP, NAMESPACE, arc, chip, dot, line, numbers, rect, restored_sign, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.timeline import Arrow, Band, Bar, Left, Mark, Row, Timeline

_HEAD, _REGION, _MODULE, _FLAGS = 46, 28, 62, 34
"""Heights of the heading, of the row of a region, of a module and of the first-module flags."""
_BELOW = 34
"""What a row is taller by in which something is wrong: it is told below the marks."""
_COLUMN, _QUIET, _LEFT = 122, 30, 150
"""Widths of a column, of a step in which nothing happened, and of what is left at the end."""
_LETTER, _SMALL = 7.4, 6.6
"""Widths of a letter, at most on average, in the two sizes."""
_NAME, _SHORT_PATH, _ERROR = 38, 6, 18
"""Letters of a module's path at most, of one that needs no line of its own, and of an error below a mark."""
_NARROW = 32
"""Width of the mark of a snapshot that is left."""
_MOST_LEFT = 3
"""How many snapshots that are left are drawn one by one."""


def picture(timeline: Timeline) -> Element:
    """Return the ``svg`` element of a timeline."""
    return _Picture(timeline).root


class _Picture:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._together: dict[tuple[int, int, float], list[Mark]] = {}
        for mark in timeline.marks:
            self._together.setdefault((mark.row, mark.column, mark.place), []).append(mark)
        self._is_wide = [_has_words_below(timeline, row) for row in range(len(timeline.rows))]
        self._lefts = _edges(_label_width(timeline.rows), [self._width(band) for band in self._bands()])
        self._tops = _edges(_HEAD, [self._height(row) for row in range(len(timeline.rows))])
        quiet = [len(_short_title(band)) * _SMALL + 20 for band in self._bands() if not band.columns]
        self._bottom = max(self._tops[-1] + _FLAGS * bool(timeline.flags_left), *quiet, 0)
        self._right = self._lefts[-1] + max(_LEFT, len(_end_words(timeline)) * _LETTER + 20)
        self._columns: dict[int, tuple[float, float]] = {}
        for band, left in zip(self._bands(), self._lefts, strict=False):
            for column in band.columns:
                self._columns[column] = left, self._column_width(column)
                left += self._column_width(column)
        width, height = self._right, self._bottom + 1
        size = {
            "viewBox": f"0 0 {width:.1f} {height:.1f}",
            **numbers(width=width, height=height),
        }
        named = {"role": "img", "aria-label": "Timeline of pushes and pops: what it shows is told in words"}
        self.root = Element("svg", {"xmlns": NAMESPACE, **size, **named})
        self._draw()

    # --- Sizes ---

    def _bands(self) -> list[Band]:
        """Return the bands that the run reached."""
        return [band for band in self._timeline.bands if band.reached]

    def _width(self, band: Band) -> float:
        return sum(self._column_width(column) for column in band.columns) or _QUIET

    def _column_width(self, column: int) -> float:
        """Return a column's width: where a forward has several marks, they stand side by side."""
        beside = max((len(marks) for place, marks in self._together.items() if place[1] == column), default=1)
        return _COLUMN + (beside - 1) * (CHIP[0] + 22)

    def _beside(self, mark: Mark) -> list[Mark]:
        """Return the marks of a mark's forward."""
        return self._together[mark.row, mark.column, mark.place]

    def _height(self, row: int) -> float:
        if not self._timeline.rows[row].is_module:
            return _REGION
        return _MODULE + _BELOW * self._is_wide[row]

    def _x(self, mark: Mark) -> float:
        left, width = self._columns[mark.column]
        beside = self._beside(mark)
        all_of_them = len(beside) * (CHIP[0] + 22)
        first = left + 4 + mark.place * (width - all_of_them - 8)
        return first + (CHIP[0] + 22) * beside.index(mark) + CHIP[0] / 2 + 3

    def _y(self, row: int) -> float:
        """Return the height of the middle of a module's marks."""
        return self._tops[row] + _MODULE - 18

    # --- Drawing, from back to front ---

    def _draw(self) -> None:
        for band, (left, right) in zip(self._bands(), pairwise(self._lefts), strict=True):
            self._band(band, left, right)
        for row in range(len(self._timeline.rows)):
            self._row(row)
        for bar in self._timeline.bars:
            self._bar(bar)
        for arrow in self._timeline.arrows:
            self._arrow(arrow)
        for mark in self._timeline.marks:
            self._mark(mark)
        if self._timeline.flags_left:
            self._flags()
        self._end()

    def _band(self, band: Band, left: float, right: float) -> None:
        phase = f"phase{band.phase}" if band.columns else "quiet"
        rect(self.root, f"band {phase}", left, 0, right - left, self._bottom)
        middle = (left + right) / 2
        if band.columns:
            text(self.root, band.title, middle, 19, "title", "middle")
            if band.iteration is not None:
                text(self.root, f"iteration {band.iteration}", middle, 36, "small", "middle")
        else:
            words = text(self.root, _short_title(band), middle + 4, 10, "small", "end")
            words.set("transform", f"rotate(-90 {middle + 4:.1f} 10)")

    def _row(self, place: int) -> None:
        row, top = self._timeline.rows[place], self._tops[place]
        line(self.root, "rule", 0, top, self._right, top)
        if not row.is_module:
            text(self.root, row.name, 10, top + 18, "title")
            return
        y = self._y(place)
        kind, path = _names(row)
        text(self.root, kind, 22, y + (-4 if path else 4), "name")
        if path:
            text(self.root, path, 22, y + 11, "small")
        self._queue(row, self._y(place))

    def _queue(self, row: Row, y: float) -> None:
        """Draw what is left in a module's queue, and from where."""
        x = self._lefts[-1] + 10
        for left in row.left[:1]:
            giver = self._timeline.giver(left.snapshot)
            if giver is not None:
                line(self.root, f"stays {_state(left)}", self._x(giver), y, x, y)
        for left in row.left[:_MOST_LEFT]:
            told = (
                "No backward is to come that would take this snapshot."
                if left.wrong
                else "Its backward is due."
            )
            words = "?" if left.snapshot < 0 else f"{left.snapshot}"
            chip(self.root, words, x + _NARROW / 2, y, f"left {_state(left)}", told, _NARROW)
            x += _NARROW + 5
        more = len(row.left) - _MOST_LEFT
        if more > 0:
            text(self.root, f"+{more}", x, y + 4, "small wrong")
        if row.unseen:
            text(self.root, f"{', '.join(map(str, row.unseen))} taken elsewhere", x, y + 4, "small")
        elif not row.left:
            text(self.root, "empty", x, y + 4, "small")

    def _flags(self) -> None:
        """Draw a last row: how many first-module flags there are after each step."""
        y = self._tops[-1] + 21
        line(self.root, "rule", 0, self._tops[-1], self._right, self._tops[-1])
        text(self.root, "first-module flags", 10, y, "title")
        for band, (left, right) in zip(self._bands(), pairwise(self._lefts), strict=True):
            text(self.root, str(band.first_flags), (left + right) / 2, y, "name", "middle")
        chip(
            self.root,
            str(self._timeline.flags_left),
            self._lefts[-1] + 10 + _NARROW / 2,
            y - 4,
            "left wrong",
            "No recompute is to come that would take these.",
            _NARROW,
        )

    def _bar(self, bar: Bar) -> None:
        top = self._tops[bar.row] + 5
        first, last = self._columns[bar.start[0]], self._columns[bar.end[0]]
        left = max(self._edge(bar.start, -1), first[0] + 3)
        right = min(self._edge(bar.end, 1), last[0] + last[1] - 3)
        kind = "recompute" if bar.recompute else "runs"
        rect(self.root, f"bar {kind}", left, top, right - left, _REGION - 10, radius=4)
        text(self.root, kind, (left + right) / 2, top + 13, "small on", "middle")

    def _edge(self, place: tuple[int, float], side: int) -> float:
        """Return where a bar ends that has its first or last mark at a place."""
        left, width = self._columns[place[0]]
        beside = [mark for at, marks in self._together.items() if at[1:] == place for mark in marks]
        half = CHIP[0] / 2 + 10
        edges = [self._x(mark) + side * half for mark in beside]
        return (min if side < 0 else max)(
            edges, default=left + place[1] * (width - 2 * half) + (1 + side) * half
        )

    def _arrow(self, arrow: Arrow) -> None:
        x1, x2 = self._x(arrow.taker), self._x(arrow.giver)
        y, half = self._y(arrow.taker.row), CHIP[1] / 2
        if arrow.kind == "due":
            arc(self.root, (x1 - 14, y + half), (x2 + 8, y + half), -13, arrow.kind)
        else:
            arc(self.root, (x1, y - half), (x2, y - half), min(14 + abs(x1 - x2) / 40, 26), arrow.kind)

    def _mark(self, mark: Mark) -> None:
        x, y = self._x(mark), self._y(mark.row)
        if mark.kind == "run" and not mark.wrong:
            dot(self.root, x, y, "It ran, and no snapshot was due.")
            return
        words = mark.kind if mark.snapshot is None else f"{mark.kind} {mark.snapshot}"
        state = "wrong" if mark.wrong else "right"
        chip(self.root, words, x, y, f"{mark.kind.replace(' ', '-')} {state}", _told(mark))
        if mark.wrong:
            below = 36 if mark.own is not None else 23
            text(self.root, _words_below(mark), x, y + below, "small wrong", "middle")
        if mark.restored is not None:
            restored_sign(self.root, x + CHIP[0] / 2 + 10, y, "seen" if mark.restored else "missing")

    def _end(self) -> None:
        """Draw the heading of what is left, and where the run stopped."""
        x, error = self._lefts[-1], self._timeline.error
        line(self.root, "edge" if error is None else "edge wrong", x, 0, x, self._bottom)
        text(self.root, "left in the queue", x + 10, 19, "title")
        text(self.root, _end_words(self._timeline), x + 10, 36, "small" if error is None else "small wrong")


# --- Words -------------------------------------------------------------------------------------------


def _told(mark: Mark) -> str:
    """Say what a mark means."""
    if mark.misrun:
        return f"It {mark.misrun}."
    if mark.kind == "push":
        return f"The module pushed snapshot {mark.snapshot} of its scales on its queue."
    if mark.kind in ("no push", "run"):
        return "It pushed no snapshot, and its recompute was to take one."
    if mark.kind == "no pop":
        return f"It found no snapshot: {mark.raised}." if mark.raised else "It took no snapshot."
    own = "its forward pushed none" if mark.own is None else f"its own is {mark.own}"
    right = f"It took snapshot {mark.snapshot}, which its own forward pushed."
    return f"It took snapshot {mark.snapshot}, but {own}." if mark.wrong else right


def _words_below(mark: Mark) -> str:
    if mark.misrun:
        return "ran otherwise"
    if mark.kind == "pop":
        return "not its own" if mark.own is None else f"should be {mark.own}"
    return mark.raised[:_ERROR] or ("pushed none" if mark.kind == "no push" else "took none")


def _end_words(timeline: Timeline) -> str:
    return "at the end" if timeline.error is None else f"when it stopped: {timeline.error.type[:_NAME]}"


def _short_title(band: Band) -> str:
    return band.title if band.iteration is None else f"{band.title} {band.iteration}"


def _names(row: Row) -> tuple[str, str]:
    """Return what stands in the two lines of a module's name; the second may be empty."""
    kind, _, path = row.name.partition(" ")
    if len(path) < _SHORT_PATH:
        return row.name, ""
    return kind, path if len(path) <= _NAME else "…" + path[-_NAME + 1 :]


def _has_words_below(timeline: Timeline, row: int) -> bool:
    return any(mark.row == row and mark.wrong for mark in timeline.marks)


# --- Pieces ------------------------------------------------------------------------------------------


def _label_width(rows: Sequence[Row]) -> float:
    widths = [156.0]
    for row in rows:
        kind, path = _names(row)
        widths += [len(kind) * _LETTER + 36, len(path) * _SMALL + 36]
    return max(widths)


def _state(left: Left) -> str:
    return "wrong" if left.wrong else "waiting"


def _edges(first: float, sizes: Sequence[float]) -> list[float]:
    edges = [first]
    for size in sizes:
        edges.append(edges[-1] + size)
    return edges
