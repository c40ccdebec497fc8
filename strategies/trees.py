"""Trees: how nodes of a graph, and steps of a schedule, are replaced and added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness.validity import pending_after

if TYPE_CHECKING:
    from collections.abc import Callable


def mapped(node: c.Node, change: Callable[[c.Node], c.Node]) -> c.Node:
    """Return the graph with every node changed, the lower ones first."""
    if isinstance(node, c.Module | c.Reuse | c.Twin):
        return change(node)
    if isinstance(node, c.Chain):
        return change(c.Chain(tuple(mapped(child, change) for child in node.nodes)))
    if isinstance(node, c.Sum):
        return change(c.Sum(tuple(mapped(branch, change) for branch in node.branches)))
    return change(msgspec.structs.replace(node, body=mapped(node.body, change)))


def with_region(case: c.Case, number: int, change: Callable[[c.Region], c.Node]) -> c.Case:
    """Return the case with one region changed: that which comes ``number``-th, from 0, as regions end."""
    met = iter(range(len(c.walk(case.graph))))

    def apply(node: c.Node) -> c.Node:
        if isinstance(node, c.Region) and next(met) == number:
            return change(node)
        return node

    return msgspec.structs.replace(case, graph=mapped(case.graph, apply))


def with_body(case: c.Case, number: int, change: Callable[[c.Node], c.Node]) -> c.Case:
    """Return the case with the body of one region changed, numbered as in ``with_region``."""
    return with_region(case, number, lambda region: msgspec.structs.replace(region, body=change(region.body)))


def appended(case: c.Case, number: int, node: c.Node) -> c.Case:
    """Return the case with a node after the body of one region, under the grad mode of its result."""
    return with_body(without_switches(case), number, lambda body: _followed(body, node))


def _followed(body: c.Node, node: c.Node) -> c.Node:
    if isinstance(body, c.GradMode | c.Autocast | c.Region):
        return msgspec.structs.replace(body, body=_followed(body.body, node))
    return c.Chain((body, node))


def ended(case: c.Case, node: c.Node) -> c.Case:
    """Return the case with a node after its graph."""
    return msgspec.structs.replace(case, graph=c.Chain((case.graph, node)))


def begun(case: c.Case, node: c.Node) -> c.Case:
    """Return the case with a node before its graph."""
    return msgspec.structs.replace(without_switches(case), graph=c.Chain((node, case.graph)))


def without_switches(case: c.Case) -> c.Case:
    """Return the case without switched modes, whose modules' numbers a new module would shift."""
    kept = tuple(step for step in case.schedule if not isinstance(step, c.SetMode))
    return msgspec.structs.replace(case, schedule=kept)


def with_steps(case: c.Case, *steps: c.Step, place: int | None = None) -> c.Case:
    """Return the case with steps put in before that place of its schedule; at its end without one."""
    at = len(case.schedule) if place is None else place
    return msgspec.structs.replace(case, schedule=(*case.schedule[:at], *steps, *case.schedule[at:]))


def places(case: c.Case, *, pending: bool) -> list[int]:
    """Return the places of a schedule before which forwards are pending, or none is."""
    after = [0, *pending_after(case.schedule)]
    return [place for place, count in enumerate(after) if (count > 0) == pending]
