"""The signs of a timeline's picture, as SVG elements; the page gives their classes their colours."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from harness.files import printable

NAMESPACE = "http://www.w3.org/2000/svg"
"""A name: nothing is fetched from there."""
CHIP = (56, 20)
"""Width and height of a mark."""
_FITTING = 7
"""Letters that fit into one; more are made narrower."""


def text(parent: Element, words: str, x: float, y: float, kind: str = "", anchor: str = "start") -> Element:
    """Add a text whose baseline begins, or has its middle, at (x, y)."""
    element = SubElement(parent, "text", {"class": kind, "text-anchor": anchor, **numbers(x=x, y=y)})
    element.text = printable(words)
    return element


def chip(
    parent: Element, words: str, x: float, y: float, kind: str, told: str = "", width: float = CHIP[0]
) -> None:
    """Add a mark with its middle at (x, y); ``told`` is shown while a mouse rests on it."""
    group = SubElement(parent, "g", {"class": f"chip {kind}"})
    if told:
        SubElement(group, "title").text = printable(told)
    rect(group, "box", x - width / 2, y - CHIP[1] / 2, width, CHIP[1], radius=5)
    written = text(group, words, x, y + 4, anchor="middle")
    if len(words) > _FITTING:
        written.attrib.update(numbers(textLength=width - 6), lengthAdjust="spacingAndGlyphs")


def dot(parent: Element, x: float, y: float, told: str = "") -> None:
    """Add a dot with its middle at (x, y); ``told`` is shown while a mouse rests on it."""
    circle = SubElement(parent, "circle", {"class": "dot", **numbers(cx=x, cy=y, r=4)})
    if told:
        SubElement(circle, "title").text = printable(told)


def restored_sign(parent: Element, x: float, y: float, kind: str) -> None:
    """Add the sign of a restore, an arrow that turns back, with its middle at (x, y)."""
    group = SubElement(parent, "g", {"class": f"restore {kind}"})
    _path(group, "line", f"M{x + 4:.1f},{y + 3:.1f} a5,5 0 1 1 0.4,-5")
    _path(group, "tip", f"M{x + 7:.1f},{y - 5:.1f} l-0.6,5 l-4.6,-2 z")
    if kind == "missing":
        _path(group, "line", f"M{x - 6:.1f},{y + 7:.1f} l12,-14")


def arc(
    parent: Element, start: tuple[float, float], end: tuple[float, float], height: float, kind: str
) -> None:
    """Add an arrow, bent upwards by a height, or downwards by a negative one."""
    (x1, y1), (x2, y2) = start, end
    back = -8 if height >= 0 else 8
    top = y1 - height * 4 / 3
    group = SubElement(parent, "g", {"class": f"arrow {kind}"})
    _path(
        group, "line", f"M{x1:.1f},{y1:.1f} C{x1:.1f},{top:.1f} {x2:.1f},{top:.1f} {x2:.1f},{y2 + back:.1f}"
    )
    _path(group, "tip", f"M{x2:.1f},{y2:.1f} l-4,{back} l8,0 z")


def rect(
    parent: Element, kind: str, x: float, y: float, width: float, height: float, radius: float = 0
) -> None:
    """Add a rectangle whose upper left corner is at (x, y)."""
    place = numbers(x=x, y=y, width=width, height=height, rx=radius)
    SubElement(parent, "rect", {"class": kind, **place})


def line(parent: Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    """Add a line from (x1, y1) to (x2, y2)."""
    SubElement(parent, "line", {"class": kind, **numbers(x1=x1, y1=y1, x2=x2, y2=y2)})


def numbers(**given: float) -> dict[str, str]:
    """Return attributes, written as short as a picture needs them."""
    return {name: f"{value:.1f}".removesuffix(".0") for name, value in given.items()}


def _path(parent: Element, kind: str, steps: str) -> None:
    SubElement(parent, "path", {"class": kind, "d": steps})
