"""Frozen modules: where Transformer Engine itself goes wrong with them, the contract thaws them.

Both faults are TE's, with and without a checkpoint; they were measured in 2.20.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from strategies.grad_modes import enables_gradients
from strategies.modules import RECOGNISED
from strategies.regions import torch_linears_recomputed_together
from strategies.trees import mapped

if TYPE_CHECKING:
    from typing import TypeAlias

    Test: TypeAlias = Callable[[c.Leaf], bool]


def thawed(graph: c.Node) -> c.Node:
    """Return the graph with those modules thawed whose freezing leaves the contract (rules o and p).

    Shrinking is not hindered: a frozen module is the less plain choice already.
    """
    if _enabled_somewhere(graph):
        graph = _thaw(graph, _looks_for_a_bias)
    if _te_runs_without_fp8(graph) or torch_linears_recomputed_together(graph):
        graph = _thaw(graph, _leads_with_layernorm_linear)
    return graph


def _looks_for_a_bias(leaf: c.Leaf) -> bool:
    """Rule o: frozen, with gradients on and an input that needs none, ``LayerNormMLP`` raises.

    It asks the bias of its normalization whether it needs a gradient (module/layernorm_mlp.py), and RMSNorm
    has none. Gradients that come on inside a region meet such inputs: phase 1 of a reentrant one.
    """
    return isinstance(leaf, c.LayerNormMLP) and leaf.normalization == "RMSNorm"


def _leads_with_layernorm_linear(leaf: c.Leaf) -> bool:
    """Rule p: frozen and first in FP8, ``LayerNormLinear`` may not see that its input needs a gradient.

    It asks a view of it (module/layernorm_linear.py), and where a function of autograd returned the input, as
    a view too, the answer is no: then no backward scale is updated. Directly that is so after a TE module
    without FP8, but not in a reentrant recompute, whose inputs are its own; after one of torch's linears it
    is so only if that stands in a reentrant region.
    """
    return isinstance(leaf, c.LayerNormLinear | c.MultiheadAttention | c.TransformerLayer)


def _enabled_somewhere(graph: c.Node) -> bool:
    contexts = (node.contexts for node in c.walk(graph) if isinstance(node, c.Region))
    return enables_gradients(graph) or any(
        context is not None and context.forward == "enable_grad" for context in contexts
    )


def _te_runs_without_fp8(graph: c.Node) -> bool:
    casts = [node for node in c.walk(graph) if isinstance(node, c.Autocast) and node.enabled]
    return bool(casts) and any(_high_precision(graph, fp8=False))


def _high_precision(node: c.Node, *, fp8: bool) -> Iterator[bool]:
    """Yield for each of TE's modules whether it runs without FP8."""
    if type(node) in RECOGNISED:
        yield not fp8
    for child in c.children(node):
        yield from _high_precision(child, fp8=node.enabled if isinstance(node, c.Autocast) else fp8)


def _thaw(graph: c.Node, wanted: Test) -> c.Node:
    def change(node: c.Node) -> c.Node:
        if isinstance(node, c.Module) and node.frozen and wanted(node):
            return msgspec.structs.replace(node, frozen=False)
        return node

    return mapped(graph, change)
