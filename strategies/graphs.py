"""Graphs: one to three regions and the modules in and between them."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from hypothesis import strategies as st

from harness import case as c
from strategies import grad_modes
from strategies.frozen import thawed
from strategies.modules import ANCHORS, PARAMETERISED, modules, recomputing
from strategies.regions import Layout, regions
from strategies.weights import rarely, weighted

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_REGIONS: Final = 3
MAX_MODULES: Final = 5
"""Dropout, which comes with another module, is not counted."""

Place: TypeAlias = Literal["after", "new region", "before", "beside", "outside", "outside as operation"]
"""Where a module goes: into the region of the one drawn before it, into a new one, or after that region."""


class Wrap(NamedTuple):
    """What is put around a module, and whether it cuts its gradients."""

    around: Callable[[c.Node], c.Node]
    cuts: bool = False


class Slot(NamedTuple):
    """A module of the graph, with its place and what is around it.

    All slots are alike, so that a slot can be deleted and the next one takes its place: that is how graphs
    shrink to the one module that matters.
    """

    place: Place
    leaf: c.Leaf
    wrap: Wrap


class Entrance(NamedTuple):
    """A graph, and whether its input needs a gradient."""

    graph: c.Node
    input_requires_grad: bool


def _as_it_is(node: c.Node) -> c.Node:
    return node


def _with_dropout(dropout: c.TorchDropout, node: c.Node) -> c.Node:
    """Join dropout with another module, since it is no anchor for a region (rule e)."""
    return c.Chain((node, dropout))


_PLAIN: Final = Wrap(_as_it_is)
_DROPOUTS: Final = (
    c.TorchDropout(), c.TorchDropout(p=0.5), c.TorchDropout(training=False), c.TorchDropout(on_cpu=True),
    c.TorchDropout(p=0.5, on_cpu=True),
)  # fmt: skip

_WRAPS: Final[list[tuple[int, Wrap]]] = [
    (75, _PLAIN),
    (8, Wrap(c.Residual)),
    *((3, Wrap(partial(c.GradMode, mode=mode))) for mode in grad_modes.ON),
    *((15, Wrap(partial(grad_modes.cut, mode), cuts=True)) for mode in grad_modes.CUTS),
    *((4, Wrap(partial(_with_dropout, dropout))) for dropout in _DROPOUTS),
]
_AUTOCASTS: Final[list[tuple[int, Wrap]]] = [
    (6, Wrap(c.Autocast)),
    (6, Wrap(partial(c.Autocast, enabled=False))),
]

_LAYOUTS: Final[st.SearchStrategy[Layout]] = weighted(
    (62, "around"), (16, "each"), (16, "inside"), (6, "none")
)
_PLACES: Final[st.SearchStrategy[Place]] = weighted(
    (7, "after"), (8, "new region"), (5, "before"), (3, "beside"), (3, "outside"), (3, "outside as operation")
)
_BODIES: Final[st.SearchStrategy[Callable[[c.Node], c.Node]]] = weighted(
    (88, _as_it_is), (6, c.Residual), *((3, partial(c.GradMode, mode=mode)) for mode in grad_modes.ON)
)
_AS_SUM: Final = weighted((4, False), (1, True))
_OPENING: Final = rarely(8, modules(PARAMETERISED, may_freeze=False), otherwise=None)
"""Rule a. What a graph starts with where its input needs no gradient: a module outside every region, with
parameters that are not frozen, so that its output needs one. PyTorch's reentrant checkpoint gives no
gradients to a region none of whose inputs needs one."""
_BACKBONE: Final = weighted(
    (3, None),
    *((1, c.Region(leaf)) for leaf in (
        c.Linear(frozen=True), c.LayerNormMLP(frozen=True), c.GroupedLinear(frozen=True, training=False),
    )),
)  # fmt: skip
"""Rule a. What may come even before the opening: a frozen backbone in a reentrant region. Nothing in it needs
a gradient, so it is not recomputed, and must push nothing. (A non-reentrant one pushes, and is never
recomputed: measured in 2.20.2. And rule p may thaw a ``LayerNormLinear``.)"""
_CLOSING: Final = rarely(25, recomputing(), otherwise=None)
"""Rule s. What a graph may end with: a module that recomputes itself, outside every region."""
_HEAD: Final = rarely(
    10,
    st.builds(c.Region, st.builds(c.LayerNormLinear, frozen=st.just(value=True), bias=st.booleans())),
    otherwise=None,
)
"""What a graph without a closing may end with: a frozen head in a reentrant region. What leads in it depends
on whether a module before it was taken for the first one of the autocast."""
_TAIL: Final = rarely(
    14, st.sampled_from([dropout for dropout in _DROPOUTS if dropout.training]), otherwise=None
)
"""Dropout after all else: draws between a region and its recompute, which no rewinding must lose."""


@cache
def _slots(enclosed: bool) -> st.SearchStrategy[list[Slot]]:
    """Draw the modules of a graph, mostly one or two. Shrinks towards one plain module."""
    # Rule g: the autocasts inside a region are nested in an enabled one.
    wraps = weighted(*_WRAPS, *(_AUTOCASTS if enclosed else []))
    slot = st.builds(Slot, _PLACES, modules(ANCHORS), wraps)
    return st.one_of(*(st.lists(slot, min_size=1, max_size=size) for size in range(2, MAX_MODULES + 1)))


class _Body:
    """The body of one region as it is put together, and what follows the region outside it."""

    def __init__(self, opening: Slot) -> None:
        # Rule e: each body has an anchor, a module that saves tensors and stands outside every cut.
        wrap = _PLAIN if opening.wrap.cuts else opening.wrap
        self._anchor = [wrap.around(opening.leaf)]
        self._before: list[c.Node] = []
        self._after: list[c.Node] = []
        self.outside: list[c.Node] = []

    def add(self, slot: Slot) -> None:
        leaf, wrap = slot.leaf, slot.wrap
        if slot.place.startswith("outside"):
            # Rule f: operations stand outside every region. Nothing but residuals and cuts is needed there.
            node = leaf if slot.place == "outside" else _operation(leaf)
            self.outside.append(wrap.around(node) if wrap.cuts or wrap.around is c.Residual else node)
        elif slot.place == "beside":
            # Rule e: a cut stands in a chain with the anchor, so not in a sum beside it.
            self._anchor.append((_PLAIN if wrap.cuts else wrap).around(leaf))
        else:
            (self._before if slot.place == "before" else self._after).append(wrap.around(leaf))

    def node(self) -> c.Node:
        anchor = self._anchor[0] if len(self._anchor) == 1 else c.Sum(tuple(self._anchor))
        return _chain([*self._before, anchor, *self._after])


def _operation(leaf: c.Leaf) -> c.Leaf:
    return c.OpsLinear(training=leaf.training, frozen=leaf.frozen, bias=getattr(leaf, "bias", True))


def _bodies(slots: list[Slot]) -> list[_Body]:
    """Put each module where it belongs; the first one opens the first region whatever its place."""
    bodies: list[_Body] = []
    for slot in slots:
        if not bodies or (slot.place == "new region" and len(bodies) < MAX_REGIONS):
            bodies.append(_Body(slot))
        else:
            bodies[-1].add(slot)
    return bodies


def _chain(nodes: list[c.Node]) -> c.Node:
    return nodes[0] if len(nodes) == 1 else c.Chain(tuple(nodes))


@st.composite
def _graph(draw: st.DrawFn) -> Entrance:
    layout = draw(_LAYOUTS)
    pieces: list[c.Node] = []
    slots = draw(_slots(layout != "none"))
    for body in _bodies(slots):
        pieces.append(draw(regions(draw(_BODIES)(body.node()), layout)))
        pieces += [c.Autocast(node) if layout == "each" else node for node in body.outside]
    graph = c.Sum(tuple(pieces)) if len(pieces) > 1 and draw(_AS_SUM) else _chain(pieces)
    opening, backbone = draw(_OPENING), draw(_BACKBONE)
    room = MAX_MODULES - len(slots)
    first: list[c.Node] = [] if opening is None or room < 1 else [opening]
    if first and backbone is not None and room > 1:
        first.insert(0, backbone)
    closing, head, tail = draw(_CLOSING), draw(_HEAD), draw(_TAIL)
    last: list[c.Node] = [node for node in (closing or head,) if node is not None and room > len(first)]
    if tail is not None:
        last.append(tail)
    if first or last:
        ends = [[c.Autocast(node) if layout == "each" else node for node in nodes] for nodes in (first, last)]
        graph = _chain([*ends[0], graph, *ends[1]])
    return Entrance(thawed(c.Autocast(graph) if layout == "around" else graph), not first)


_GRAPHS: Final = _graph()


def graphs() -> st.SearchStrategy[Entrance]:
    """Draw a graph of one to three regions and one to five modules, and whether its input needs a gradient.

    Regions are never nested, and no module is used twice (rule i). Shrinks towards one ``Linear`` in one
    plain reentrant region under one autocast, with an input that needs a gradient.
    """
    return _GRAPHS
