"""A document, of which a page is made in Markdown or HTML: what is said, apart from how it is written."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Heading(msgspec.Struct, frozen=True):
    """A heading: level 1 is the title's."""

    level: int
    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph; ``link``, where there is one, is where its text leads."""

    text: str
    link: str | None = None


class Rows(msgspec.Struct, frozen=True):
    """A table; the first column is a name."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Code(msgspec.Struct, frozen=True):
    """Lines as they are, in a language, "" for none."""

    text: str
    language: str = ""


class Folded(msgspec.Struct, frozen=True):
    """What is shown when asked for."""

    title: str
    blocks: tuple[Block, ...]


Block: TypeAlias = Heading | Paragraph | Rows | Code | Folded
