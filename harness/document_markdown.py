"""Writes a document as Markdown, as GitHub reads it. Words of strangers stay words."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from harness.document import Block, Code, Folded, Heading, Paragraph, Rows
from harness.files import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIGNS = re.compile(r"[\\`*_\[\]<>|#&~$]")


def markdown(blocks: Iterable[Block]) -> str:
    """Return a document as Markdown."""
    return "\n\n".join(map(_written, blocks)) + "\n"


def _written(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_plain(block.text)}"
        case Paragraph():
            text = _plain(block.text)
            return text if block.link is None else f"[{text}]({block.link})"
        case Rows():
            head, *rows = (f"| {' | '.join(map(_cell, cells))} |" for cells in [block.head, *block.rows])
            return "\n".join([head, f"|{' --- |' * len(block.head)}", *rows])
        case Code():
            fence = _fence(block.text)
            return "\n".join([f"{fence}{block.language}", *map(printable, block.text.split("\n")), fence])
        case Folded():
            inner = markdown(block.blocks).rstrip("\n")
            return f"<details><summary>{escape(printable(block.title))}</summary>\n\n{inner}\n\n</details>"


def _plain(text: str) -> str:
    return _SIGNS.sub(lambda sign: f"\\{sign[0]}", printable(text))


def _cell(text: str) -> str:
    return _plain(text) or " "


def _fence(text: str) -> str:
    """Return a fence longer than any row of backticks within."""
    longest = max((len(row) for row in re.findall("`+", text)), default=0)
    return "`" * max(3, longest + 1)
