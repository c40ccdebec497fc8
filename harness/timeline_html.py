"""A timeline as a page: one HTML file with everything in it, for a light or dark screen and for paper.

Every element is made as a tree and written by the library, which escapes all words: a case, and what it
makes TE say, come from strangers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, tostring

import msgspec

from harness import case as c
from harness.files import printable
from harness.sentence import describe
from harness.story import tell
from harness.timeline_signs import CHIP, NAMESPACE, arc, chip, dot, restored_sign
from harness.timeline_svg import picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harness.timeline import Timeline
    from harness.violations import Violation

_STYLE = Path(__file__).with_name("timeline.css")
_VIOLATIONS = 12
"""How many violations are listed before one asks for the others."""
_EXPLANATION = (
    "With delayed scaling an FP8 module keeps scales, which change from one iteration to the next. A"
    " checkpointed region throws its activations away in the forward, and in the backward it runs once more:"
    " the recompute. That must compute what the forward computed, so it needs the scales of then.",
    "Therefore the forward pushes a snapshot of the module's scales on a queue, one for each module. The"
    " recompute pops the oldest, computes with it, and puts the live scales back. All is well where each"
    " recompute gets the snapshot that its own forward pushed, and the queue is empty once all backwards are"
    " done. A recompute that gets another's trains on wrong numbers, mostly without any error.",
)
_FLAGS = (
    "First-module flags are one list for all modules: a region's forward appends whether its module is the"
    " first in the autocast, and a recompute takes the oldest. The row counts them after each step."
)


def page(case: c.Case, timeline: Timeline, where: Mapping[str, str]) -> bytes:
    """Return the page of a case: sentence, story, picture, verdict, data; ``where`` says on what it ran."""
    verdict = "violated" if timeline.violations else "held"
    root = Element("html", {"lang": "en"})
    _head(SubElement(root, "head"), f"{case.fingerprint} {verdict}")
    body = SubElement(root, "body")
    title = _add(body, "h1", f"Case {case.fingerprint}")
    _add(title, "span", verdict, f"verdict {verdict}")
    _add(body, "p", describe(case))
    story = SubElement(body, "div", {"class": f"story {verdict if timeline.is_right else 'violated'}"})
    for sentence in tell(timeline):
        _add(story, "p", sentence)
    _add(body, "h2", "Push, pop and recompute")
    for paragraph in _EXPLANATION:
        _add(body, "p", paragraph)
    _add(body, "h2", "What happened")
    _add(body, "p", "A row for each FP8 module in a region, with a queue of its own; time goes to the right.")
    SubElement(body, "div", {"class": "picture"}).append(picture(timeline))
    _legend(SubElement(body, "ul", {"class": "legend"}))
    if timeline.flags_left:
        _add(body, "p", _FLAGS)
    _verdict(body, timeline)
    _data(body, case, where)
    written: str = tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{written}\n".encode()


def _head(head: Element, title: str) -> None:
    SubElement(head, "meta", {"charset": "utf-8"})
    # Whatever a page holds by mistake: nothing is run, and nothing fetched.
    policy = {
        "http-equiv": "Content-Security-Policy",
        "content": "default-src 'none'; style-src 'unsafe-inline'",
    }
    SubElement(head, "meta", policy)
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    _add(head, "title", title)
    SubElement(head, "style").text = _STYLE.read_text(encoding="utf-8")


def _verdict(body: Element, timeline: Timeline) -> None:
    _add(body, "h2", "Verdict")
    if timeline.violations:
        _add(body, "p", "Against the same case run without checkpoints, on an equal model:")
        # What is wrong with the bookkeeping is nearer to the cause than what it does to the numbers.
        lines = [str(violation) for violation in sorted(timeline.violations, key=_is_of_numbers)]
        _list(body, lines[:_VIOLATIONS])
        if lines[_VIOLATIONS:]:
            details = SubElement(body, "details")
            _add(details, "summary", f"{len(lines) - _VIOLATIONS} more")
            _list(details, lines[_VIOLATIONS:])
    else:
        _add(body, "p", "The case held: the checkpointed run did as the direct one.")
    missed = [band.full_title for band in timeline.bands if not band.reached]
    if missed:
        _add(body, "p", f"Not reached: {', '.join(missed)}.")


def _is_of_numbers(violation: Violation) -> bool:
    return violation.difference is not None


def _data(body: Element, case: c.Case, where: Mapping[str, str]) -> None:
    # Closed, it is not printed: a case has a line for each field.
    details = SubElement(body, "details")
    _add(details, "summary", "The case as data")
    data = msgspec.json.format(c.encode(case), indent=2).decode()
    block = SubElement(details, "pre")
    block.text = "\n".join(printable(line) for line in data.splitlines())
    _add(body, "p", f"Run with {', '.join(f'{name} {value}' for name, value in where.items())}.", "soft")


# --- The legend --------------------------------------------------------------------------------------


def _legend(parent: Element) -> None:
    """Explain the signs, each drawn as in the picture."""
    middle = CHIP[0] / 2 + 4, 18.0
    signs: tuple[tuple[str, Callable[[Element], object]], ...] = (
        ("pushed: snapshot 0", lambda svg: chip(svg, "push 0", *middle, "push right")),
        (
            "popped by the recompute of the forward that pushed it",
            lambda svg: chip(svg, "pop 0", *middle, "pop right"),
        ),
        ("popped by another's recompute", lambda svg: chip(svg, "pop 0", *middle, "pop wrong")),
        ("due, but none was taken or pushed", lambda svg: chip(svg, "no pop", *middle, "no-pop wrong")),
        ("from a pop to the snapshot that it took", lambda svg: arc(svg, (56, 26), (8, 26), 14, "own")),
        ("where that was another's", lambda svg: arc(svg, (56, 26), (8, 26), 14, "wrong")),
        ("to the one it should have taken", lambda svg: arc(svg, (56, 10), (8, 10), -12, "due")),
        ("afterwards the live scales were seen put back", lambda svg: restored_sign(svg, *middle, "seen")),
        ("they were seen to be others than before", lambda svg: restored_sign(svg, *middle, "missing")),
        ("ran, and no snapshot was due", lambda svg: dot(svg, *middle)),
        ("left over: nobody will take it", lambda svg: chip(svg, "0", *middle, "left wrong", width=32)),
    )
    for words, draw in signs:
        item = SubElement(parent, "li")
        size = {"viewBox": "0 0 64 32", "width": "64", "height": "32", "aria-hidden": "true"}
        draw(SubElement(item, "svg", {"xmlns": NAMESPACE, **size}))
        _add(item, "span", words)


# --- Pieces ------------------------------------------------------------------------------------------


def _add(parent: Element, tag: str, words: str, kind: str = "") -> Element:
    element = SubElement(parent, tag, {"class": kind} if kind else {})
    element.text = printable(words)
    return element


def _list(parent: Element, lines: Iterable[str]) -> None:
    items = SubElement(parent, "ul")
    for line in lines:
        _add(SubElement(items, "li"), "code", line)
