"""Trees: how one node of a graph is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from harness import case as c

if TYPE_CHECKING:
    from collections.abc import Callable


def mapped(node: c.Node, change: Callable[[c.Node], c.Node]) -> c.Node:
    """Return the graph with every node changed, the lower ones first."""
    if isinstance(node, c.Module):
        return change(node)
    if isinstance(node, c.Chain):
        return change(c.Chain(tuple(mapped(child, change) for child in node.nodes)))
    if isinstance(node, c.Sum):
        return change(c.Sum(tuple(mapped(branch, change) for branch in node.branches)))
    return change(msgspec.structs.replace(node, body=mapped(node.body, change)))


def region_changed(graph: c.Node, number: int, change: Callable[[c.Region], c.Node]) -> c.Node:
    """Return the graph with one region changed: that which comes ``number``-th, from 0, as regions end."""
    met = iter(range(len(c.walk(graph))))

    def apply(node: c.Node) -> c.Node:
        if isinstance(node, c.Region) and next(met) == number:
            return change(node)
        return node

    return mapped(graph, apply)
