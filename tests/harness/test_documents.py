"""Documents: what strangers wrote stays words, in Markdown and in HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from harness.document import Block, Code, Folded, Heading, Paragraph, Rows
from harness.document_html import html
from harness.document_markdown import markdown

EVIL = "<script>alert(1)</script> | `x` *y* [z](javascript:1) </details>\x1b[31m\nnew # line"
BLOCKS: list[Block] = [
    Heading(1, EVIL),
    Paragraph(EVIL),
    Paragraph(EVIL, "timelines/a.html"),
    Rows((EVIL, "b"), ((EVIL, EVIL),)),
    Code(f"```\n{EVIL}", "sh"),
    Folded(EVIL, (Paragraph(EVIL), Code("x = 1", "python"))),
]


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, _attributes: object) -> None:
        self.opened.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_no_tag_that_a_stranger_wrote() -> None:
    page = Tags(html(EVIL, BLOCKS).decode())
    assert "script" not in page.opened
    assert page.opened.count("details") == 1
    assert page.text.count("<script>alert(1)</script>") == 10
    assert "\x1b" not in page.text


def test_a_page_fetches_nothing_and_runs_nothing() -> None:
    page = html("title", BLOCKS).decode()
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r'src="|url\(|<link|@import', page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


@pytest.mark.parametrize("block", BLOCKS[:4], ids=lambda block: type(block).__name__)
def test_markdown_has_no_sign_that_a_stranger_wrote(block: Block) -> None:
    written = markdown([block])
    for sign in "<>`*|":
        own = written.replace(" | ", "").replace("| ", "").replace(" |", "")
        assert not re.search(rf"(?<!\\){re.escape(sign)}", own), sign
    assert "\x1b" not in written


def test_a_table_has_as_many_cells_in_each_row() -> None:
    head, rule, row = markdown([BLOCKS[3]]).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in (head, rule, row)} == {3}
    assert rule == "| --- | --- |"


def test_code_cannot_end_its_own_fence() -> None:
    lines = markdown([Code("````\n</details>\n```", "sh")]).splitlines()
    assert (lines[0], lines[-1]) == ("`````sh", "`````")


def test_what_is_folded_is_markdown_again() -> None:
    written = markdown([Folded("a < b", (Code("x = 1", "python"),))])
    assert written == "<details><summary>a &lt; b</summary>\n\n```python\nx = 1\n```\n\n</details>\n"
