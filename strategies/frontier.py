"""The frontier: cases of the contract, each taken beyond it by a few features.

A case switches on few features at a time, so that one known fault does not hide another. Each feature is a
twist: it takes any case, and returns one that is valid and has the feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from hypothesis import strategies as st

from harness import case as c
from strategies.contract import contract
from strategies.frozen import thawed
from strategies.trees import mapped, region_changed

if TYPE_CHECKING:
    from collections.abc import Callable

    Twist = Callable[[c.Case], st.SearchStrategy[c.Case]]


def _with_region(case: c.Case, number: int, change: Callable[[c.Region], c.Node]) -> c.Case:
    return msgspec.structs.replace(case, graph=region_changed(case.graph, number, change))


def _with_body(case: c.Case, number: int, change: Callable[[c.Node], c.Node]) -> c.Case:
    return _with_region(
        case, number, lambda region: msgspec.structs.replace(region, body=change(region.body))
    )


def _without_switches(case: c.Case) -> c.Case:
    """Return the case without switched modes, whose modules' numbers a new module would shift."""
    kept = tuple(step for step in case.schedule if not isinstance(step, c.SetMode))
    return msgspec.structs.replace(case, schedule=kept)


def _region_numbers(case: c.Case) -> st.SearchStrategy[int]:
    return st.integers(0, len(c.regions(case)) - 1)


def _appended(case: c.Case, number: int, node: c.Node) -> c.Case:
    return _with_body(_without_switches(case), number, lambda body: _followed(body, node))


def _followed(body: c.Node, node: c.Node) -> c.Node:
    """Put a node after a body, under the grad mode in which the body gives its result."""
    if isinstance(body, c.GradMode | c.Autocast):
        return msgspec.structs.replace(body, body=_followed(body.body, node))
    return c.Chain((body, node))


@st.composite
def _nested(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put the body of a region into a region of its own."""
    number, use_reentrant = draw(_region_numbers(case)), draw(st.sampled_from([True, False]))
    return _with_body(case, number, lambda body: c.Region(body, use_reentrant=use_reentrant))


@st.composite
def _abandoned(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Add a forward whose backward never comes, before any step or after the last."""
    place = draw(st.integers(0, len(case.schedule)))
    before = case.schedule[:place]
    pending = sum(isinstance(s, c.Forward) - isinstance(s, c.Backward | c.Abandon) for s in before)
    steps = (*before, c.Forward(), c.Abandon(pending), *case.schedule[place:])
    return msgspec.structs.replace(case, schedule=steps)


def _out_of_order(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with two forwards, and the backward of the second before that of the first."""
    steps = (*case.schedule, c.Forward(), c.Forward(8.0), c.Backward(which=1), c.Backward())
    return st.just(msgspec.structs.replace(case, schedule=steps))


@st.composite
def _with_operation(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put an operation of ``te.ops`` after the body of a region, in an autocast of its own."""
    operation = c.Autocast(c.OpsLinear())
    return _appended(case, draw(_region_numbers(case)), operation)


@st.composite
def _with_recomputing(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put a module that recomputes itself after the body of a region."""
    module = c.LayerNormMLP(recompute=True)
    return _appended(case, draw(_region_numbers(case)), module)


@st.composite
def _opened_inside(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Open the autocasts inside the regions alone, one of which is reentrant."""

    def moved(node: c.Node) -> c.Node:
        if isinstance(node, c.Autocast):
            return node.body
        return (
            msgspec.structs.replace(node, body=c.Autocast(node.body)) if isinstance(node, c.Region) else node
        )

    case = msgspec.structs.replace(case, graph=mapped(case.graph, moved))
    return _with_region(
        case,
        draw(_region_numbers(case)),
        lambda region: msgspec.structs.replace(region, use_reentrant=True, contexts=None),
    )


@st.composite
def _without_gradient(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Start with a non-reentrant region whose input needs no gradient."""
    kinds: list[c.Leaf] = [c.Linear(), c.LayerNormLinear(), c.LayerNormMLP(), c.GroupedLinear()]
    first = c.Autocast(c.Region(draw(st.sampled_from(kinds)), use_reentrant=False))
    graph = c.Chain((first, case.graph))
    return msgspec.structs.replace(_without_switches(case), graph=graph, input_requires_grad=False)


TWISTS: Final[tuple[Twist, ...]] = (
    _nested, _abandoned, _out_of_order, _with_operation, _with_recomputing, _opened_inside, _without_gradient,
)  # fmt: skip
"""What takes a case beyond the contract."""


@st.composite
def _frontier(draw: st.DrawFn) -> c.Case:
    case = draw(contract())
    for twist in draw(st.lists(st.sampled_from(TWISTS), min_size=1, max_size=2, unique=True)):
        case = draw(twist(case))
    return msgspec.structs.replace(case, graph=thawed(case.graph))


_FRONTIER: Final = _frontier()


def frontier() -> st.SearchStrategy[c.Case]:
    """Draw a case of the contract with one or two features beyond it.

    Shrinks towards one feature, on the plainest case of the contract.
    """
    return _FRONTIER
