"""Scripts: lines of Python, indented, formatted and short enough to read."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 110
"""Columns of a script, at most."""


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines one level further in."""
    return [f"    {line}" if line else line for line in lines]


def call(function: str, *arguments: str) -> str:
    """Return a call; arguments that are empty are left out."""
    return f"{function}({', '.join(argument for argument in arguments if argument)})"


def number(value: float) -> str:
    """Return a number as a person writes it: 8 for 8.0."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def listed(names: Sequence[str]) -> str:
    """Return the elements of a tuple that is being unpacked."""
    return ", ".join(names) + ("," if len(names) == 1 else "")


def comment(text: str) -> list[str]:
    """Return a comment of as many lines as its text takes."""
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2)]


def folded(lines: Iterable[str]) -> list[str]:
    """Break calls that are too long for a line after the opening and before the closing bracket."""
    found: list[str] = []
    for line in lines:
        found += _folded(line)
    return found


def _folded(line: str) -> list[str]:
    groups = _groups(line)
    if len(line) <= WIDTH or not groups:
        return [line]
    opening, closing = max(groups, key=lambda group: group[1] - group[0])
    indent = " " * (len(line) - len(line.lstrip()))
    inside = line[opening + 1 : closing]
    top = _top_level(inside)
    whole = " for " in "".join(inside[at] for at in top)
    commas = [at for at in top if inside[at] == "," and at + 1 < len(inside) and not whole]
    lines = [f"{indent}    {inside}"]
    if commas and len(lines[0]) > WIDTH:
        ends = [*commas, len(inside)]
        starts = [0, *(at + 1 for at in commas)]
        lines = [f"{indent}    {inside[a:b].strip()}," for a, b in zip(starts, ends, strict=True)]
    return [line[: opening + 1], *folded(lines), *_folded(indent + line[closing:])]


def _groups(line: str) -> list[tuple[int, int]]:
    """Return where the outermost brackets with something in them open and close."""
    top = _top_level(line)
    opened = [at for at in top if line[at] in "([{"]
    closed = [at for at in top if line[at] in ")]}"]
    return [(a, b) for a, b in zip(opened, closed, strict=False) if b > a + 1]


def _top_level(text: str) -> list[int]:
    """Return the places of a text that are in no brackets, those of the outermost brackets included."""
    found, depth, quoted = [], 0, ""
    for at, letter in enumerate(text):
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        elif letter in "([{":
            found += [at] if depth == 0 else []
            depth += 1
        elif letter in ")]}":
            depth -= 1
            found += [at] if depth == 0 else []
        elif depth == 0:
            found.append(at)
    return found
