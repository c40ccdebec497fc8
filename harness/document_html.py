"""Writes a document as one HTML page, for a light or dark screen and for paper, that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, tostring

from harness.document import Block, Code, Folded, Heading, Paragraph, Rows
from harness.files import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLE = Path(__file__).with_name("timeline.css")


def html(title: str, blocks: Iterable[Block]) -> bytes:
    """Return a document as a page. The library escapes all words: some come from strangers."""
    root = Element("html", {"lang": "en"})
    head = SubElement(root, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    # Whatever a page holds by mistake: nothing is run, and nothing fetched.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
    _add(head, "title", title)
    SubElement(head, "style").text = _STYLE.read_text(encoding="utf-8")
    body = SubElement(root, "body")
    for block in blocks:
        _write(body, block)
    written: str = tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{written}\n".encode()


def _write(parent: Element, block: Block) -> None:
    match block:
        case Heading():
            _add(parent, f"h{block.level}", block.text)
        case Paragraph():
            paragraph = SubElement(parent, "p")
            if block.link is None:
                paragraph.text = printable(block.text)
            else:
                _add(paragraph, "a", block.text).set("href", block.link)
        case Rows():
            table = SubElement(parent, "table")
            _row(table, "th", block.head)
            for cells in block.rows:
                _row(table, "td", cells)
        case Code():
            SubElement(parent, "pre").text = "\n".join(map(printable, block.text.split("\n")))
        case Folded():
            details = SubElement(parent, "details")
            _add(details, "summary", block.title)
            for inner in block.blocks:
                _write(details, inner)


def _row(table: Element, kind: str, cells: Iterable[str]) -> None:
    row = SubElement(table, "tr")
    for cell in cells:
        _add(row, kind, cell)


def _add(parent: Element, name: str, text: str) -> Element:
    element = SubElement(parent, name)
    element.text = printable(text)
    return element
