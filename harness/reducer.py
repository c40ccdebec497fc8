"""Reducer: makes a case smaller, one change after another, for as long as it does what it is wanted for.

Hypothesis shrinks what it drew itself. A case that comes from a file has no draws behind it, so this works
on the case: the same kinds of changes, on plain data.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from harness import case as c
from harness import validity
from harness.errors import InvalidInput
from harness.failure import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ROUND_MAGNITUDES: Final = (1.0, 2.0, 8.0, 100.0)
"""What is tried for a float; a magnitude tells the more, the rounder it is."""

_KEPT: Final = ("schema", "body", "nodes", "branches", "graph", "schedule")
"""Fields that are changed in other ways than by giving them another value."""


def reduce(
    case: c.Case,
    wanted: Callable[[c.Case], bool],
    most: int | None = None,
    on_smaller: Callable[[c.Case], None] | None = None,
) -> c.Case:
    """Return the smallest case found that is still wanted, as ``case`` must be.

    No change that ``smaller`` knows makes the result both smaller and wanted, unless ``most`` ended it.

    Args:
        case: where to begin.
        wanted: tells whether a smaller case does the same; asked once of each.
        most: how often it is asked at most; None for no limit.
        on_smaller: called with each smaller case that is wanted.
    """
    tried = {case.fingerprint}
    place, since = 0, 0
    changes = list(smaller(case))
    # All changes in a circle, until none of them has done anything since the last that did.
    while changes and since < len(changes):
        candidate = changes[place % len(changes)]
        place, since = place + 1, since + 1
        if candidate.fingerprint in tried:
            continue
        if len(tried) - 1 == most:
            break
        tried.add(candidate.fingerprint)
        if wanted(candidate):
            case, changes, since = candidate, list(smaller(candidate)), 0
            place = min(place - 1, len(changes))
            if on_smaller is not None:
                on_smaller(case)
    return case


def smaller(case: c.Case) -> Iterator[c.Case]:
    """Yield each valid case that one change makes smaller, the boldest changes first."""
    size = size_of(case)
    for changed in itertools.chain(_with_fewer_nodes(case), _with_fewer_steps(case), _plainer(case)):
        if size_of(changed) < size and _is_valid(changed):
            yield changed


def _is_valid(case: c.Case) -> bool:
    try:
        validity.check(case)
    except InvalidInput:
        return False
    return True


# --- Nodes -------------------------------------------------------------------------------------------


def _with_fewer_nodes(case: c.Case) -> Iterator[c.Case]:
    """Yield the case without parts of its graph, larger parts first, and with plainer modules."""
    places = range(len(c.walk(case.graph)))
    for place in places:
        node = c.walk(case.graph)[place]
        for below in range(1, len(c.walk(node))):
            yield _with_node_lifted(case, place, place + below)
    for place in _with_siblings(case.graph):
        yield _renumbered(case, _without_node(case.graph, place), _span(case.graph, place))
    for place in places:
        node = c.walk(case.graph)[place]
        if isinstance(node, c.Module) and not isinstance(node, c.Linear):
            plainer = c.Linear(training=node.training, frozen=node.frozen)
            yield msgspec.structs.replace(case, graph=_with_node(case.graph, place, plainer))


def _with_node_lifted(case: c.Case, place: int, below: int) -> c.Case:
    """Return the case with a node in the place of one that stands above it."""
    nodes = c.walk(case.graph)
    graph = _with_node(case.graph, place, nodes[below])
    kept = _span(case.graph, below)
    return _renumbered(case, graph, [number for number in _span(case.graph, place) if number not in kept])


def _with_siblings(graph: c.Node) -> Iterator[int]:
    """Yield the place, in the order of a walk, of each node that has others beside it."""
    for place, node in enumerate(c.walk(graph)):
        below = place + 1
        for child in c.children(node):
            if len(c.children(node)) > 1:
                yield below
            below += len(c.walk(child))


def _span(graph: c.Node, place: int) -> range:
    """Return the places, in the order of a walk, of a node and all below it."""
    return range(place, place + len(c.walk(c.walk(graph)[place])))


def _with_node(graph: c.Node, place: int, new: c.Node) -> c.Node:
    """Return a graph with another node at a place, counted in the order of a walk."""
    return _spliced(graph, place, (new,))[0]


def _without_node(graph: c.Node, place: int) -> c.Node:
    """Return a graph without a node that has others beside it."""
    return _spliced(graph, place, ())[0]


def _spliced(node: c.Node, place: int, new: tuple[c.Node, ...]) -> tuple[c.Node, ...]:
    """Return a node with that at a place below it replaced; or, for place 0, what replaces the node."""
    if place == 0:
        return new
    at = 1
    below: list[c.Node] = []
    for child in c.children(node):
        size = len(c.walk(child))
        below += _spliced(child, place - at, new) if at <= place < at + size else (child,)
        at += size
    if isinstance(node, c.Chain):
        return (c.Chain(tuple(below)),)
    if isinstance(node, c.Sum):
        return (c.Sum(tuple(below)),)
    return (msgspec.structs.replace(node, body=below[0]),)


def _renumbered(case: c.Case, graph: c.Node, gone: Sequence[int]) -> c.Case:
    """Return the case with a graph without the nodes at some places, its modules and regions told anew.

    Steps that are about a module that is gone go with it. What cannot do without it makes the case invalid.
    """
    nodes = c.walk(case.graph)
    modules = _numbers(nodes, gone, c.Module)
    regions = _numbers(nodes, gone, c.Region)
    schedule: list[c.Step] = []
    for step in case.schedule:
        if isinstance(step, c.SetMode):
            if step.module in modules:
                schedule.append(msgspec.structs.replace(step, module=modules[step.module]))
        elif isinstance(step, c.Forward | c.Backward) and step.fails is not None:
            schedule.append(msgspec.structs.replace(step, fails=regions.get(step.fails, -1)))
        else:
            schedule.append(step)
    graph = _with_uses(graph, modules)
    return msgspec.structs.replace(case, graph=graph, schedule=tuple(schedule))


def _numbers(nodes: list[c.Node], gone: Sequence[int], kind: type[c.Module | c.Region]) -> dict[int, int]:
    """Return the new number of each node of a kind that stays, by its old one."""
    places = [place for place, node in enumerate(nodes) if isinstance(node, kind)]
    kept = [old for old, place in enumerate(places) if place not in gone]
    return {old: new for new, old in enumerate(kept)}


def _with_uses(graph: c.Node, modules: dict[int, int]) -> c.Node:
    """Return a graph whose further uses of modules have their new numbers."""
    for place, node in enumerate(c.walk(graph)):
        if isinstance(node, c.Reuse | c.Twin):
            graph = _with_node(graph, place, type(node)(modules.get(node.module, -1)))
    return graph


# --- Steps -------------------------------------------------------------------------------------------


def _with_fewer_steps(case: c.Case) -> Iterator[c.Case]:
    """Yield the case without some of its steps: runs of them, long ones first, pairs, single ones."""
    steps = case.schedule
    for length in _halves(len(steps)):
        for start in range(len(steps) - length + 1):
            yield msgspec.structs.replace(case, schedule=steps[:start] + steps[start + length :])
    for place, step in enumerate(steps):
        if isinstance(step, c.Forward) and step.fails is None:
            yield msgspec.structs.replace(case, schedule=_without_forward(steps, place))
        elif isinstance(step, c.Forward):
            evaluated = (*steps[:place], c.Evaluate(step.magnitude), *steps[place + 1 :])
            yield msgspec.structs.replace(case, schedule=evaluated)
        elif isinstance(step, c.OpenAutocast | c.SaveState):
            for other in range(place + 1, len(steps)):
                if isinstance(steps[other], c.CloseAutocast | c.LoadState):
                    kept = (*steps[:place], *steps[place + 1 : other], *steps[other + 1 :])
                    yield msgspec.structs.replace(case, schedule=kept)


def _halves(length: int) -> Iterator[int]:
    while length > 1:
        length //= 2
        yield length


def _without_forward(steps: tuple[c.Step, ...], place: int) -> tuple[c.Step, ...]:
    """Return the steps without a forward, and without its backward or what else takes it."""
    kept: list[c.Step] = list(steps[:place])
    # How many forwards are pending before this one: its number among them, until it is taken.
    own: int | None = validity.pending_after(steps)[place] - 1
    for step in steps[place + 1 :]:
        if own is None or not isinstance(step, c.Backward | c.Abandon):
            kept.append(step)
            continue
        losses = step.losses if isinstance(step, c.Backward) else 1
        stays = isinstance(step, c.Backward) and step.retain
        if own < step.which:
            kept.append(msgspec.structs.replace(step, which=step.which - 1))
        elif own < step.which + losses:
            if isinstance(step, c.Backward) and losses > 1:
                kept.append(msgspec.structs.replace(step, losses=losses - 1))
            own = own if stays else None
        else:
            kept.append(step)
            own -= 0 if stays else losses
    return tuple(kept)


# --- Values ------------------------------------------------------------------------------------------


def _plainer(case: c.Case) -> Iterator[c.Case]:
    """Yield the case with one value nearer to its default: of the case, of a node, of a step."""
    yield from _with_plainer_fields(case)
    for place, node in enumerate(c.walk(case.graph)):
        for changed in _with_plainer_fields(node):
            yield msgspec.structs.replace(case, graph=_with_node(case.graph, place, changed))
    for place, step in enumerate(case.schedule):
        for changed in _with_plainer_fields(step):
            schedule = (*case.schedule[:place], changed, *case.schedule[place + 1 :])
            yield msgspec.structs.replace(case, schedule=schedule)


def _with_plainer_fields(value: Any) -> Iterator[Any]:
    for field in msgspec.structs.fields(value):
        if field.name in _KEPT:
            continue
        held = getattr(value, field.name)
        for plainer in _plainer_values(held, field.default, field.type):
            yield msgspec.structs.replace(value, **{field.name: plainer})


def _plainer_values(held: Any, default: Any, kind: Any) -> Iterator[Any]:
    """Yield what may stand for a value, the plainest first."""
    if held == default:
        return
    if default is not msgspec.NODEFAULT:
        yield default
    if isinstance(held, msgspec.Struct):
        yield from _with_plainer_fields(held)
    elif held in get_args(kind):
        yield from itertools.takewhile(lambda other: other != held, get_args(kind))
    elif isinstance(held, float):
        yield from (size for size in _ROUND_MAGNITUDES if size not in (held, default))
    elif isinstance(held, int) and not isinstance(held, bool) and isinstance(default, int):
        # By halves, and not one by one: a seed may be four billion.
        yield from (default + (held - default) // part for part in (8, 4, 2))
