"""The contract: cases for which the corrected checkpoint promises equality with the direct run.

Its rules, each of which stands next to the code that builds it:

a. every region entered with gradients on receives a tensor that needs one (``graphs``);
b. what cuts gradients stands directly inside a residual (``grad_modes``);
c. gradients switched on again around a region are recomputed, inside it they are not (``regions``);
d. ``context_fn`` gives contexts that leave the recompute its gradients (``grad_modes``, ``regions``);
e. every region's body has an anchor that saves tensors, outside every cut (``modules``, ``graphs``);
f. regions without TE modules go to PyTorch's checkpoint, ``te.ops`` stays outside (``modules``, ``regions``);
g. an autocast inside a region is nested, or the region non-reentrant with gradients on (``regions``);
h. modules whose output depends on their mode keep it between forward and backward (``schedules``);
i. regions are not nested and no module is used twice (``graphs``);
j. magnitudes may be zero (``schedules``);
k. regions may run without any autocast (``regions``);
l. an evaluation meets no region with gradients on (``grad_modes``);
m. the first forward of all is not in inference mode (``schedules``);
n. a tracker of random states goes with regions without dropout (``contract``);
o. with gradients switched on, no frozen ``LayerNormMLP`` has RMSNorm (``frozen``);
p. after TE modules without FP8 or recomputed torch linears, no frozen ``LayerNormLinear`` leads (``frozen``);
q. with torch's autocast, no reentrant region has two of torch's linears (``contract``);
r. of several pending forwards, the oldest one's backward comes first (``schedules``);
s. modules that recompute themselves stand outside regions (``graphs``) and torch's autocast (``contract``).
"""

from __future__ import annotations

from typing import Final, Literal

from hypothesis import strategies as st

from harness import case as c
from harness.validity import ROWS_OF_TWO_GROUPS, dropout_of
from strategies.grad_modes import evaluations_of
from strategies.graphs import graphs
from strategies.modules import ATTENTION
from strategies.recipes import recipes
from strategies.regions import torch_linears_recomputed_together
from strategies.schedules import schedules
from strategies.weights import PLACES, rarely, weighted

_GRAPHS: Final = graphs()
_RECIPES: Final = recipes()
_DTYPES: Final[st.SearchStrategy[c.Dtype]] = weighted((4, "float32"), (1, "bfloat16"))
_DTYPES_OF_OTHER_RECIPES: Final[st.SearchStrategy[c.Dtype]] = weighted((1, "float32"), (1, "bfloat16"))
"""Without delayed scaling and torch's autocast, bfloat16 shows faults of a recompute that float32 hides."""
_TORCH_AUTOCAST: Final = weighted((3, False), (1, True))
_TORCH_AUTOCAST_OF_LINEARS: Final = weighted((1, False), (1, True))
"""What torch's autocast casts is above all torch's own linear modules."""
_QUANTIZED_PARAMETERS: Final = weighted((12, False), (1, True))
_RNG_TRACKER: Final = weighted((1, False), (2, True))
_ROWS: Final[st.SearchStrategy[Literal[16, 32]]] = weighted((5, 16), (1, 32))
_WIDTHS: Final[st.SearchStrategy[Literal[32, 64]]] = weighted((8, 32), (1, 64))
_SEEDS: Final = rarely(90, st.integers(0, PLACES - 1), otherwise=0)


@st.composite
def _contract(draw: st.DrawFn) -> c.Case:
    graph, input_requires_grad = draw(_GRAPHS)
    recipe = draw(_RECIPES)
    # Drawn whether it is used or not: a draw that only plain cases need would make them the larger ones, and
    # cases shrink towards fewer draws.
    rows = draw(_ROWS)
    leaves = [node for node in c.walk(graph) if isinstance(node, c.Module)]
    linears = any(isinstance(leaf, c.TorchLinear) for leaf in leaves)
    # Rule q: torch's autocast casts a leaf once for all that use it, and the input of a reentrant recompute
    # is a leaf: its gradients are then summed in bfloat16, those of direct execution in float32.
    shares_casts = torch_linears_recomputed_together(graph) > 1
    torch_autocast = draw(_TORCH_AUTOCAST_OF_LINEARS if linears else _TORCH_AUTOCAST) and not (
        shares_casts or _recomputes_itself(leaves)
    )
    usual = torch_autocast or isinstance(recipe, c.DelayedScaling)
    return c.Case(
        graph=graph,
        schedule=draw(
            schedules(
                [leaf.training for leaf in leaves],
                mode_sensitive=[number for number, leaf in enumerate(leaves) if dropout_of(leaf) > 0],
                evaluations=evaluations_of(graph),
            )
        ),
        recipe=recipe,
        dtype=draw(_DTYPES if usual else _DTYPES_OF_OTHER_RECIPES),
        torch_autocast=torch_autocast,
        quantized_parameters=draw(_QUANTIZED_PARAMETERS) and not isinstance(recipe, c.HighPrecision),
        input_requires_grad=input_requires_grad,
        rng_tracker=draw(_RNG_TRACKER) and _may_track(graph),
        rows=ROWS_OF_TWO_GROUPS if _has_groups(leaves) else rows,
        width=draw(_WIDTHS),
        seed=draw(_SEEDS),
    )


def _has_groups(leaves: list[c.Leaf]) -> bool:
    """Tell whether a module splits the rows into groups, and so needs more of them."""
    return any(isinstance(leaf, c.GroupedLinear) and leaf.groups > 1 for leaf in leaves)


def _recomputes_itself(leaves: list[c.Leaf]) -> bool:
    """Tell whether a module recomputes itself.

    Rule s: the frontier puts such modules into regions, where faults are known, and under torch's autocast.
    """
    return any(isinstance(leaf, c.LayerNormMLP) and leaf.recompute for leaf in leaves)


def _may_track(graph: c.Node) -> bool:
    """Tell whether the graph has attention, and no region has dropout.

    Rule n: given a tracker, ``te.checkpoint`` keeps references to CUDA's random states rather than copies
    (distributed.py, where states are safe for CUDA graphs), so nothing is rewound for the recompute, and
    dropout draws another mask. Wrong gradients in 2.19.0 and 2.20.2, measured on an H200.
    """
    inside = (node for region in c.walk(graph) if isinstance(region, c.Region) for node in c.walk(region))
    drops = any(isinstance(node, c.Module) and dropout_of(node) > 0 for node in inside)
    return not drops and any(isinstance(node, ATTENTION) for node in c.walk(graph))


_CONTRACT: Final = _contract()


def contract() -> st.SearchStrategy[c.Case]:
    """Draw a case for which the corrected checkpoint promises equality with the direct run.

    Shrinks towards one ``Linear`` in train mode in a plain reentrant region, under one autocast with the
    default ``DelayedScaling`` recipe, run for one iteration in float32.
    """
    return _CONTRACT
