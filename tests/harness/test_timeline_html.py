"""The page of a timeline stands alone, is well-formed, and is red exactly where the pairing is wrong."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from harness import case as c
from harness.timeline import make_timeline
from harness.timeline_html import page
from harness.trace import Closeup, Event, RunError, Trace
from harness.verdict import Verdict
from harness.violations import Violation

if TYPE_CHECKING:
    from harness.session import Session

ONE = c.Autocast(c.Region(c.Linear()))
IN_ORDER = (c.Forward(), c.Forward(), c.Backward(), c.Backward())
OUT_OF_ORDER = (c.Forward(), c.Forward(), c.Backward(which=1), c.Backward())
DROPPED = (c.Forward(), c.Abandon(), c.Forward(), c.Backward())
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta"}
EVIL = '<script src="https://evil.example/x.js">&amp;"\'\x1b[31m'


def drawn(session: Session, schedule: tuple[c.Step, ...]) -> str:
    case = c.Case(graph=ONE, schedule=schedule)
    verdict, trace = session.examine(case, Closeup())
    return page(case, make_timeline(case, trace, verdict), {"backend": "cpu"}).decode()


def from_a_stranger() -> str:
    """A page into which strangers have put words wherever they can."""
    case = c.Case(graph=ONE, schedule=(c.Forward(), c.Backward()))
    events = [Event(0, 0, 1), Event(0, 0, 1, module=f"region 0: {EVIL}", delayed=True)]
    closeup = Closeup(steps=[0, 0], iterations={0: 0, 1: 0}, modules={f"region 0: {EVIL}": EVIL})
    error = RunError(1, "Backward", 0, EVIL, EVIL)
    trace = Trace(events=events, closeup=closeup, error=error)
    violation = Violation(oracle="same errors", message=EVIL, iteration=0, module=EVIL)
    verdict = Verdict(fingerprint=case.fingerprint, violations=(violation,))
    return page(case, make_timeline(case, trace, verdict), {"checkpointer": EVIL}).decode()


def picture(text: str) -> ET.Element:
    (found,) = re.findall(r'<div class="picture">(<svg.*?</svg>)</div>', text, re.DOTALL)
    return ET.fromstring(found)  # noqa: S314 - our own


def arrows(text: str, kind: str) -> int:
    return len(picture(text).findall(f'.//{SVG}g[@class="arrow {kind}"]'))


def chips(text: str) -> list[str]:
    """The words of all marks, in the order in which they are drawn; wrong ones with an exclamation mark."""
    groups = picture(text).iter(f"{SVG}g")
    return [_words(group) for group in groups if group.get("class", "").startswith("chip")]


def _words(chip: ET.Element) -> str:
    (words,) = (element.text or "" for element in chip.findall(f"{SVG}text"))
    return words + "!" * ("wrong" in chip.get("class", "").split())


class Tags(HTMLParser):
    """Reads a page as a browser does, and notes elements, attributes and what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [tag] * (tag not in VOID)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=["held", "out of order", "stranger"])
def any_page(request: pytest.FixtureRequest, te_session: Session) -> str:
    if request.param == "stranger":
        return from_a_stranger()
    return drawn(te_session, IN_ORDER if request.param == "held" else OUT_OF_ORDER)


def test_the_page_is_well_formed(any_page: str) -> None:
    assert any_page.startswith("<!DOCTYPE html>\n<html")
    assert Tags(any_page).open == []
    for svg in re.findall(r"<svg.*?</svg>", any_page, re.DOTALL):
        ET.fromstring(svg)  # noqa: S314 - our own


def test_nothing_is_run_and_nothing_comes_from_elsewhere(any_page: str) -> None:
    tags = Tags(any_page)
    assert not tags.seen & {"script", "link", "img", "image", "use", "iframe", "object", "a", "base", "form"}
    assert not tags.attributes & {"src", "href", "xlink:href", "action", "srcset", "style", "onload"}
    assert "url(" not in any_page
    assert "@import" not in any_page
    assert "default-src 'none'" in any_page


def test_words_of_strangers_are_words() -> None:
    text = from_a_stranger()
    assert "<script" not in text
    assert "&lt;script" in text
    assert "\x1b" not in text
    assert all(line.isprintable() for line in text.splitlines())


def test_a_case_that_holds_has_green_arrows_only(te_session: Session) -> None:
    text = drawn(te_session, IN_ORDER)
    assert (arrows(text, "own"), arrows(text, "wrong"), arrows(text, "due")) == (2, 0, 0)
    assert chips(text) == ["push 0", "push 1", "pop 0", "pop 1"]
    assert ">held</span>" in text


def test_a_red_arrow_leads_to_another_s_snapshot_and_a_broken_one_to_its_own(te_session: Session) -> None:
    text = drawn(te_session, OUT_OF_ORDER)
    assert (arrows(text, "own"), arrows(text, "wrong"), arrows(text, "due")) == (0, 2, 2)
    assert chips(text) == ["push 0", "push 1", "pop 0!", "pop 1!"]
    assert "should be 1" in text
    assert ">violated</span>" in text


def test_what_is_left_is_drawn_at_the_right_edge(te_session: Session) -> None:
    text = drawn(te_session, DROPPED)
    assert chips(text) == ["1!", "push 0", "push 1", "pop 0!", "1!"], "the last one counts the flags"
    (line,) = picture(text).findall(f'.//{SVG}line[@class="stays wrong"]')
    assert float(line.get("x1", "")) < float(line.get("x2", ""))


def test_a_restore_is_drawn_where_it_was_seen(te_session: Session) -> None:
    assert len(picture(drawn(te_session, IN_ORDER)).findall(f'.//{SVG}g[@class="restore seen"]')) == 2


def test_where_a_run_stopped_there_is_its_error() -> None:
    text = from_a_stranger()
    assert len(picture(text).findall(f'.//{SVG}line[@class="edge wrong"]')) == 1
    assert "when it stopped: &lt;script" in text


def test_everything_lies_within_the_picture(te_session: Session) -> None:
    svg = picture(drawn(te_session, DROPPED))
    width, height = float(svg.get("width", "")), float(svg.get("height", ""))
    for box in svg.iter(f"{SVG}rect"):
        left, top = float(box.get("x", "")), float(box.get("y", ""))
        assert 0 <= left <= left + float(box.get("width", "")) <= width
        assert 0 <= top <= top + float(box.get("height", "")) <= height


def test_the_case_can_be_taken_from_the_page(te_session: Session) -> None:
    text = drawn(te_session, DROPPED)
    (data,) = re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)
    assert c.encode(c.Case(graph=ONE, schedule=DROPPED)).decode() == re.sub(r"\s+", "", data)
