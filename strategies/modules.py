"""Modules: the leaves of a graph."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from harness import case as c
from strategies.weights import weighted

if TYPE_CHECKING:
    from collections.abc import Collection

Kind: TypeAlias = type[c.Leaf]

WEIGHTS: Final[dict[Kind, int]] = {
    c.Linear: 26,
    c.LayerNormLinear: 14,
    c.LayerNormMLP: 15,
    c.GroupedLinear: 9,
    c.LayerNorm: 5,
    c.RMSNorm: 5,
    c.TorchLinear: 7,
    c.TorchLayerNorm: 3,
    c.TorchGELU: 3,
    c.TorchDropout: 3,
    c.OpsLinear: 4,
    c.MultiheadAttention: 5,
    c.TransformerLayer: 4,
}
"""How often each kind is drawn; the simplest first, and the slow ones seldom."""

RECOGNISED: Final[frozenset[Kind]] = frozenset(
    {
        c.Linear, c.LayerNormLinear, c.LayerNormMLP, c.GroupedLinear,
        c.LayerNorm, c.RMSNorm, c.MultiheadAttention, c.TransformerLayer,
    }
)  # fmt: skip
"""The kinds by which ``te.checkpoint`` tells that a module is its own to checkpoint."""

ATTENTION: Final = (c.MultiheadAttention, c.TransformerLayer)
"""The kinds that can draw their dropout under a tracker of random states."""

ANCHORS: Final[frozenset[Kind]] = frozenset(
    kind for kind in WEIGHTS if kind not in (c.OpsLinear, c.TorchDropout)
)
"""The kinds over which a region can stand.

Rule e: they save tensors for their backward. A non-reentrant region is recomputed only when a saved tensor is
asked for, and dropout in eval mode saves none.
Rule f: ``te.checkpoint`` hands ``te.ops`` to PyTorch's checkpoint, which recomputes it outside FP8."""

PARAMETERISED: Final[frozenset[Kind]] = frozenset(WEIGHTS) - {c.TorchGELU, c.TorchDropout}
"""Rule a. The kinds whose output needs a gradient though their input needs none, unless they are frozen."""

_ACTIVATIONS: Final = (
    "swiglu", "relu", "geglu", "silu", "qgelu", "qgeglu", "reglu", "srelu", "sreglu", "clamped_swiglu",
)  # fmt: skip
"""Without ``glu``, which 2.12 refuses. Older releases refuse some of these too; ``harness.support`` tells."""

_NORMALIZED: Final[list[dict[str, Any]]] = [{}, {}, {"bias": False}, {"normalization": "RMSNorm"}]

_OPTIONS: Final[dict[Kind, list[dict[str, Any]]]] = {
    c.Linear: [{}, {}, {}, {"bias": False}],
    c.LayerNormLinear: [*_NORMALIZED, {"bias": False, "normalization": "RMSNorm"}],
    c.LayerNormMLP: [
        *_NORMALIZED,
        *_NORMALIZED,
        *({"activation": activation} for activation in _ACTIVATIONS),
        {"bias": False, "normalization": "RMSNorm", "activation": "swiglu"},
    ],
    c.GroupedLinear: [{}, {}, {"groups": 2}, {"groups": 2}, {"bias": False}],
    c.MultiheadAttention: [{}, {"input_layernorm": True}, {"dropout": 0.1}],
    c.TransformerLayer: [{}, {"activation": "swiglu"}, {"dropout": 0.1}],
    c.OpsLinear: [{}, {}, {}, {"bias": False}],
    c.TorchLinear: [{}, {}, {}, {"bias": False}],
    c.TorchDropout: [{"p": 0.1}, {"p": 0.5}],
}
"""What a kind can be given, plain first. A plain entry stands several times to be drawn more often."""

# One draw for both: Hypothesis deletes up to five draws at a time, so that a whole element of a list of
# modules goes only while it costs no more.
_TRAINING_AND_FROZEN: Final = weighted(
    (12, (True, False)), (1, (True, True)), (4, (False, False)), (1, (False, True))
)


@st.composite
def _module(draw: st.DrawFn, prototypes: st.SearchStrategy[c.Leaf], may_freeze: bool) -> c.Leaf:
    prototype = draw(prototypes)
    training, frozen = draw(_TRAINING_AND_FROZEN)
    return msgspec.structs.replace(prototype, training=training, frozen=frozen and may_freeze)


def modules(
    kinds: Collection[Kind] = tuple(WEIGHTS), *, may_freeze: bool = True
) -> st.SearchStrategy[c.Leaf]:
    """Draw a module of one of these kinds: its options, its mode, and whether its parameters are frozen.

    Shrinks towards a ``Linear`` (or the first of the kinds in ``WEIGHTS``) with default options, in train
    mode and not frozen. With ``may_freeze`` false no module is frozen.
    """
    unknown = [kind for kind in kinds if kind not in WEIGHTS]
    if unknown or not kinds:
        raise InvalidArgument(f"modules() needs kinds out of strategies.modules.WEIGHTS, got {kinds!r}")
    return _modules(frozenset(kinds), may_freeze)


def recomputing() -> st.SearchStrategy[c.LayerNormMLP]:
    """Draw a module that recomputes itself, which is not frozen. Shrinks towards a plain one."""
    return _RECOMPUTING


@cache
def _modules(kinds: frozenset[Kind], may_freeze: bool) -> st.SearchStrategy[c.Leaf]:
    prototypes: list[tuple[int, c.Leaf]] = []
    for kind, weight in WEIGHTS.items():
        options = _OPTIONS.get(kind, [{}])
        share = max(1, round(2 * weight / len(options)))
        prototypes += [(share, kind(**option)) for option in options if kind in kinds]
    return _module(weighted(*prototypes), may_freeze)


_RECOMPUTING: Final[st.SearchStrategy[c.LayerNormMLP]] = st.builds(
    c.LayerNormMLP,
    training=weighted((3, True), (1, False)),
    bias=weighted((3, True), (1, False)),
    normalization=weighted((2, "LayerNorm"), (1, "RMSNorm")),
    activation=weighted((2, "gelu"), *((1, name) for name in _ACTIVATIONS)),
    recompute=st.just(value=True),
)
