"""A case: one experiment as plain data.

Everything that decides a result is in the case, so that its JSON alone replays it: the module graph,
the recipe, the schedule and the seed. Tensors are never elements, only a seed and a magnitude.
A case holds no code, imports neither torch nor Transformer Engine, and is safe to read from strangers.

What it is made of stands in ``nodes``, ``recipe`` and ``steps``, and has its names here too.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Literal, TypeAlias

import msgspec

from harness.nodes import (
    Activation,
    Autocast,
    Chain,
    ContextName,
    Contexts,
    Discard,
    Gain,
    GradMode,
    GradModeName,
    GroupedLinear,
    LayerNorm,
    LayerNormLinear,
    LayerNormMLP,
    Leaf,
    Linear,
    Module,
    MultiheadAttention,
    Node,
    Normalization,
    OpsLinear,
    Region,
    Residual,
    Reuse,
    RMSNorm,
    Sum,
    TorchDropout,
    TorchGELU,
    TorchLayerNorm,
    TorchLinear,
    TransformerLayer,
    Twin,
)  # fmt: skip
from harness.plain_data import Data
from harness.recipe import CurrentScaling, DelayedScaling, HighPrecision, Recipe
from harness.steps import (
    Abandon,
    Backward,
    CloseAutocast,
    DeepCopy,
    Evaluate,
    Forward,
    LoadState,
    OpenAutocast,
    OptimizerStep,
    SaveState,
    SetMode,
    SetRecipe,
    Step,
)  # fmt: skip

__all__ = [
    "Abandon", "Activation", "Autocast", "Backward", "Case", "Chain", "CloseAutocast", "ContextName",
    "Contexts", "CurrentScaling", "DeepCopy", "DelayedScaling", "Discard", "Dtype", "Evaluate", "Forward",
    "Gain", "GradMode", "GradModeName", "GroupedLinear", "HighPrecision", "LayerNorm", "LayerNormLinear",
    "LayerNormMLP", "Leaf", "Linear", "LoadState", "Module", "MultiheadAttention", "Node", "Normalization",
    "OpenAutocast", "OpsLinear", "OptimizerStep", "RMSNorm", "Recipe", "Region", "Residual", "Reuse",
    "SaveState", "SetMode", "SetRecipe", "Step", "Sum", "TorchDropout", "TorchGELU", "TorchLayerNorm",
    "TorchLinear", "TransformerLayer", "Twin", "children", "encode", "leaves", "modules", "originals",
    "plain", "regions", "twins", "walk",
]  # fmt: skip

SCHEMA = 1
"""Version of the JSON layout written by this release."""

MAX_BYTES = 64 * 1024
"""Size of the largest case file that is read; real cases take one to four kilobytes."""

Dtype: TypeAlias = Literal["float32", "bfloat16"]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment. See the module's docstring; ``harness.validity`` says which cases make sense."""

    graph: Node
    schedule: tuple[Step, ...]
    recipe: Recipe = DelayedScaling()
    dtype: Dtype = "float32"
    torch_autocast: bool = False
    quantized_parameters: bool = False
    input_requires_grad: bool = True
    rng_tracker: bool = False
    """Attention draws its dropout under a ``CudaRNGStatesTracker``, which the checkpoint is given too."""
    rows: Literal[16, 32] = 16
    width: Literal[32, 64] = 32
    seed: int = 0
    schema: int = SCHEMA

    @property
    def fingerprint(self) -> str:
        """The name of the case everywhere: 16 hex digits of the SHA-256 of its canonical JSON."""
        return hashlib.sha256(encode(self)).hexdigest()[:16]


def encode(case: Case) -> bytes:
    """Return the canonical JSON of a case: that of ``plain``, without insignificant white space."""
    return msgspec.json.encode(plain(case))


def plain(case: Case) -> dict[str, Any]:
    """Return a case as dictionaries and lists, in a fixed order, with its schema and without defaults.

    Defaults are left out so that a field added later renames no case; in return no default is ever changed
    without a new ``SCHEMA``.
    """
    return {**_plain(case), "schema": case.schema}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields: dict[str, Any] = {"type": value.__struct_config__.tag} if isinstance(value, Data) else {}
    for name, default in _defaults(type(value)):
        held = getattr(value, name)
        if held != default:
            fields[name] = _plain(held)
    return fields


@functools.cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in msgspec.structs.fields(kind))


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below a node, in the order in which they run."""
    if isinstance(node, Chain):
        return node.nodes
    if isinstance(node, Sum):
        return node.branches
    if isinstance(node, Residual | Autocast | GradMode | Discard | Region):
        return (node.body,)
    return ()


def walk(node: Node) -> list[Node]:
    """Return the node and all below it, parents first, in the order in which they run."""
    found = [node]
    for child in children(node):
        found.extend(walk(child))
    return found


def modules(case: Case) -> list[Leaf]:
    """Return the modules of a case; a module's number is its place in this list."""
    return [node for node in walk(case.graph) if isinstance(node, Module)]


def leaves(case: Case, node: Node) -> list[Leaf]:
    """Return the modules that run in a part of the graph, those too that are used again or copied there."""
    numbered = modules(case)
    found = (numbered[below.module] if isinstance(below, Reuse | Twin) else below for below in walk(node))
    return [leaf for leaf in found if isinstance(leaf, Module)]


def originals(case: Case) -> list[Leaf]:
    """Return the modules of a case, and after them, for each twin, the module that it is a copy of."""
    numbered = modules(case)
    return numbered + [numbered[twin.module] for twin in twins(case)]


def twins(case: Case) -> list[Twin]:
    """Return the twins of a case, in the order in which they run."""
    return [node for node in walk(case.graph) if isinstance(node, Twin)]


def regions(case: Case) -> list[Region]:
    """Return the regions of a case; a region's number is its place in this list."""
    return [node for node in walk(case.graph) if isinstance(node, Region)]
