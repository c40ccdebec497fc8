"""What of a case lies beyond the contract: the features that a frontier case switches on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness import case as c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Above = tuple[c.Node, ...]


def features_beyond(case: c.Case) -> frozenset[str]:
    """Return the names, out of ``BEYOND``, of what a case does that no case of the contract does."""
    return frozenset(name for name, has in BEYOND.items() if has(case))


def has_nested_regions(case: c.Case) -> bool:
    """Tell whether a region stands inside another."""
    return any(isinstance(node, c.Region) and _enclosing(above) for node, above in with_parents(case.graph))


def with_parents(node: c.Node, above: Above = ()) -> Iterator[tuple[c.Node, Above]]:
    """Yield each node with the nodes above it, outermost first."""
    yield node, above
    for child in c.children(node):
        yield from with_parents(child, (*above, node))


def _enclosing(above: Above) -> list[c.Region]:
    return [node for node in above if isinstance(node, c.Region)]


def _is_enabled(above: Above) -> bool:
    """Tell whether the innermost autocast is an enabled one."""
    casts = [node.enabled for node in above if isinstance(node, c.Autocast)]
    return bool(casts) and casts[-1]


def _abandons(case: c.Case) -> bool:
    return any(isinstance(step, c.Abandon) for step in case.schedule)


def _goes_backward_out_of_order(case: c.Case) -> bool:
    return any(isinstance(step, c.Backward) and step.which > 0 for step in case.schedule)


def _has_operations_in_fp8(case: c.Case) -> bool:
    return any(
        isinstance(node, c.OpsLinear) and bool(_enclosing(above)) and _is_enabled(above)
        for node, above in with_parents(case.graph)
    )


def _recomputes_itself_in_a_region(case: c.Case) -> bool:
    return any(
        isinstance(node, c.LayerNormMLP) and node.recompute and bool(_enclosing(above))
        for node, above in with_parents(case.graph)
    )


def _opens_in_reentrant(case: c.Case) -> bool:
    """Tell whether the first autocast on the way to a module is opened inside a reentrant region."""
    return any(
        isinstance(node, c.Autocast)
        and node.enabled
        and not _is_enabled(above)
        and any(region.use_reentrant for region in _enclosing(above))
        for node, above in with_parents(case.graph)
    )


def _starts_without_gradient(case: c.Case) -> bool:
    """Tell whether a non-reentrant region is given the graph's input, which needs no gradient."""
    return not case.input_requires_grad and any(
        isinstance(node, c.Region) and not node.use_reentrant for node in _first(case.graph)
    )


def _first(node: c.Node) -> Iterator[c.Node]:
    """Yield the nodes that are given the graph's input itself, down to the regions and modules."""
    yield node
    if isinstance(node, c.Region | c.Module):
        return
    below = c.children(node)
    for child in below[:1] if isinstance(node, c.Chain) else below:
        yield from _first(child)


BEYOND: Final[dict[str, Callable[[c.Case], bool]]] = {
    "nested regions": has_nested_regions,
    "forward abandoned": _abandons,
    "backwards out of order": _goes_backward_out_of_order,
    "te.ops in a region": _has_operations_in_fp8,
    "module that recomputes itself in a region": _recomputes_itself_in_a_region,
    "autocast opened in a reentrant region": _opens_in_reentrant,
    "non-reentrant region without input gradient": _starts_without_gradient,
}
"""The features beyond the contract, each with what tells whether a case has it."""
