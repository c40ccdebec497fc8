"""Regions: what is handed to the checkpoint, how, and what stands directly around it."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

from hypothesis import strategies as st

from harness import case as c
from strategies import grad_modes
from strategies.modules import RECOGNISED
from strategies.weights import rarely, weighted

Layout: TypeAlias = Literal["around", "each", "inside", "none"]
"""Where the FP8 autocast stands: around the whole graph, around each of its pieces, inside the regions,
or nowhere. Without one a region runs with FP8 off, which is fine (rule k): there is nothing to push."""


Function: TypeAlias = Literal["module", "callable", "method"]


class Surrounding(NamedTuple):
    """What stands directly around a region, and the grad modes outside and inside it where it has any."""

    name: Literal[
        "plain", "residual", "cut", "enabled around", "re-enabled around", "re-enabled by context",
        "re-enabled inside", "nested autocast", "FP8 off",
    ]  # fmt: skip
    outer: c.GradModeName = "no_grad"
    inner: c.GradModeName = "enable_grad"


# Rule c. Gradients that are switched on again between an outer "off" and the region are on when the region
# is entered: it is recomputed. Switched on inside the region, by its context or in its body, they come too
# late for that: the region is called directly, and the gradients are right without a recompute.
_SURROUNDINGS: Final[list[tuple[int, Surrounding]]] = [
    (160, Surrounding("plain")),
    (20, Surrounding("residual")),
    *((11, Surrounding("cut", mode)) for mode in grad_modes.CUTS),
    *((5, Surrounding("enabled around", inner=mode)) for mode in grad_modes.ON),
    *((4, Surrounding("re-enabled around", *modes)) for modes in product(grad_modes.OFF, grad_modes.ON)),
    *((5, Surrounding("re-enabled by context", mode)) for mode in grad_modes.OFF),
    *((3, Surrounding("re-enabled inside", *modes)) for modes in product(grad_modes.OFF, grad_modes.ON)),
    (10, Surrounding("nested autocast")),
    (14, Surrounding("FP8 off")),
]
_ENTERED_WITHOUT_GRADIENTS: Final = ("cut", "re-enabled by context", "re-enabled inside")

_FUNCTIONS: Final[st.SearchStrategy[Function]] = st.sampled_from(["module", "callable", "method"])
_GAINS: Final = rarely(
    45,
    st.builds(
        c.Gain,
        value=st.sampled_from([2.0, 0.5, -1.5]),
        as_tensor=st.booleans(),
        by_keyword=st.booleans(),
    ),
    otherwise=None,
)
_EXOTIC: Final = weighted((5, False), (5, True))
_RESULTS: Final[st.SearchStrategy[Literal["tensor", "tuple"]]] = weighted((3, "tensor"), (1, "tuple"))
_WITH_CONTEXTS: Final = weighted((4, False), (6, True))
_REENTRANT: Final = st.sampled_from([True, False])


@cache
def surroundings(*, enclosed: bool, enabling: bool) -> st.SearchStrategy[Surrounding]:
    """Draw what stands around a region. Shrinks towards nothing.

    ``enclosed`` says whether an enabled autocast stands around it all, ``enabling`` whether the region's
    body switches gradients on.
    """
    # Rule g: a nested autocast, enabled or not, is nested in an enabled one.
    # Gradients that are switched on only to be cut off again are for nothing, but mark their module as the
    # first one: its backward, which never comes, was to update the backward scales (quantization.py,
    # is_first_fp8_module). And inference mode must meet nothing of the kind, see grad_modes.CUTS.
    return weighted(
        *(
            (weight, surrounding)
            for weight, surrounding in _SURROUNDINGS
            if (enclosed or surrounding.name not in ("nested autocast", "FP8 off"))
            and not (enabling and surrounding.name == "cut")
        )
    )


def is_recognised(body: c.Node, function: Function) -> bool:
    """Tell whether ``te.checkpoint`` keeps such a region, rather than hand it to PyTorch's checkpoint.

    It looks for modules of its own inside a ``torch.nn.Module``, and takes any other callable for one that
    has them.
    """
    return function != "module" or any(type(node) in RECOGNISED for node in c.walk(body))


def torch_linears_recomputed_together(graph: c.Node) -> int:
    """Return how many of torch's linears a reentrant region has at most."""
    reentrant = (node for node in c.walk(graph) if isinstance(node, c.Region) and node.use_reentrant)
    counts = (sum(isinstance(node, c.TorchLinear) for node in c.walk(region)) for region in reentrant)
    return max(counts, default=0)


@st.composite
def regions(draw: st.DrawFn, body: c.Node, layout: Layout) -> c.Node:
    """Draw a region over this body, with what stands around it.

    Half of the regions are plain: a module handed over with neither gain nor contexts, which returns a
    tensor. Shrinks towards a plain reentrant region with nothing around it.
    """
    enabling = grad_modes.enables_gradients(body)
    surrounding = draw(surroundings(enclosed=layout == "around", enabling=enabling))
    use_reentrant = draw(_REENTRANT)
    function: Function = "module"
    gain = contexts = None
    results: Literal["tensor", "tuple"] = "tensor"
    exotic = draw(_EXOTIC)
    if exotic:
        function, gain, results = draw(_FUNCTIONS), draw(_GAINS), draw(_RESULTS)
    if surrounding.name.startswith("re-enabled") and not is_recognised(body, function):
        # Rule f: PyTorch's checkpoint, entered with gradients off, returns a result without one whatever
        # happens inside. A callable keeps the region with Transformer Engine.
        function = "callable"
    if gain is not None and not _takes(gain, body, function, surrounding, use_reentrant=use_reentrant):
        gain = None
    if surrounding.name == "re-enabled by context":
        contexts = draw(grad_modes.contexts_enabling())
    elif exotic and is_recognised(body, function) and draw(_WITH_CONTEXTS):
        # Rule d: PyTorch's reentrant checkpoint refuses a context_fn, so regions left to it have none.
        contexts = draw(_contexts(surrounding, use_reentrant=use_reentrant))
    on_inside = contexts is not None and contexts.forward in grad_modes.ON
    if surrounding.name in _ENTERED_WITHOUT_GRADIENTS and (
        on_inside or surrounding.name == "re-enabled inside"
    ):
        # Rules b and c: several results are joined outside the region, where gradients are still off.
        results = "tensor"
    opened_inside = layout == "inside" and not use_reentrant and surrounding.name != "cut"
    if opened_inside:
        body = c.Autocast(body)
    if surrounding.name == "re-enabled inside":
        body = c.GradMode(body, surrounding.inner)
    piece = _surround(c.Region(body, use_reentrant, function, gain, contexts, results), surrounding)
    # Rule g: opened only inside a reentrant region, an autocast never updates the forward scales, and one
    # that closes with gradients off leaves its amaxes to the next update, which a recompute brings forward.
    # Such a region gets its autocast from outside, beyond every grad mode.
    return c.Autocast(piece) if layout in ("each", "inside") and not opened_inside else piece


def _takes(
    gain: c.Gain, body: c.Node, function: Function, surrounding: Surrounding, *, use_reentrant: bool
) -> bool:
    """Tell whether a region can be given this gain."""
    if surrounding.name == "re-enabled inside":
        # Rule c: the gain multiplies outside the body, where gradients are still off.
        return False
    # Rule f: PyTorch's reentrant checkpoint takes no keyword arguments.
    return is_recognised(body, function) or not (gain.by_keyword and use_reentrant)


def _contexts(surrounding: Surrounding, *, use_reentrant: bool) -> st.SearchStrategy[c.Contexts]:
    if surrounding.name in _ENTERED_WITHOUT_GRADIENTS:
        return grad_modes.contexts_without_gradients(surrounding.outer == "inference_mode")
    return grad_modes.contexts_with_gradients(use_reentrant)


def _surround(region: c.Region, surrounding: Surrounding) -> c.Node:
    outer, inner = surrounding.outer, surrounding.inner
    around: dict[str, c.Node] = {
        "plain": region,
        "residual": c.Residual(region),
        "cut": grad_modes.cut(outer, region),
        "enabled around": c.GradMode(region, inner),
        "re-enabled around": c.GradMode(c.GradMode(region, inner), outer),
        "re-enabled by context": c.GradMode(region, outer),
        "re-enabled inside": c.GradMode(region, outer),
        "nested autocast": c.Autocast(region),
        "FP8 off": c.Autocast(region, enabled=False),
    }
    return around[surrounding.name]
