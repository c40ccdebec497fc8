"""A case: one experiment as plain data.

Everything that decides a result is in the case, so that its JSON alone replays it: the module graph,
the recipe, the schedule and the seed. Tensors are never elements, only a seed and a magnitude.
A case holds no code, imports neither torch nor Transformer Engine, and is safe to read from strangers.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Literal, TypeAlias

import msgspec

SCHEMA = 1
"""Version of the JSON layout written by this release."""

MAX_BYTES = 64 * 1024
"""Size of the largest case file that is read; real cases take one to four kilobytes."""

Activation: TypeAlias = Literal[
    "gelu", "geglu", "glu", "qgelu", "qgeglu", "relu", "reglu", "srelu", "sreglu", "silu", "swiglu",
    "clamped_swiglu",
]  # fmt: skip
Normalization: TypeAlias = Literal["LayerNorm", "RMSNorm"]
GradModeName: TypeAlias = Literal[
    "no_grad", "enable_grad", "set_grad_enabled_false", "set_grad_enabled_true", "inference_mode"
]
ContextName: TypeAlias = Literal["null", "no_grad", "enable_grad"]
Dtype: TypeAlias = Literal["float32", "bfloat16"]


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Common settings of all case structs: immutable, tagged, and strict about unknown fields."""


# --- Modules: the leaves of a graph. Each maps [rows / 2, 2, width] to the same shape. ---------------


class Module(_Data, frozen=True, kw_only=True):
    """What every module has: its own mode when the run starts, and whether its parameters are frozen."""

    training: bool = True
    frozen: bool = False


class Linear(Module, frozen=True, kw_only=True, tag="Linear"):
    """``te.Linear(width, width)``."""

    bias: bool = True


class LayerNormLinear(Module, frozen=True, kw_only=True, tag="LayerNormLinear"):
    """``te.LayerNormLinear(width, width)``."""

    bias: bool = True
    normalization: Normalization = "LayerNorm"


class LayerNormMLP(Module, frozen=True, kw_only=True, tag="LayerNormMLP"):
    """``te.LayerNormMLP(width, 2 * width)``; it recomputes itself in the checkpointed run alone."""

    bias: bool = True
    normalization: Normalization = "LayerNorm"
    activation: Activation = "gelu"
    recompute: bool = False
    """``checkpoint=True``: what the first linear and the activation save is recomputed in the backward."""


class GroupedLinear(Module, frozen=True, kw_only=True, tag="GroupedLinear"):
    """``te.GroupedLinear(groups, width, width)``, the rows split evenly over the groups."""

    bias: bool = True
    groups: Literal[1, 2] = 1


class LayerNorm(Module, frozen=True, kw_only=True, tag="LayerNorm"):
    """``te.LayerNorm(width)``."""


class RMSNorm(Module, frozen=True, kw_only=True, tag="RMSNorm"):
    """``te.RMSNorm(width)``."""


class MultiheadAttention(Module, frozen=True, kw_only=True, tag="MultiheadAttention"):
    """``te.MultiheadAttention(width, 2)`` with unfused attention."""

    input_layernorm: bool = False
    dropout: float = 0.0


class TransformerLayer(Module, frozen=True, kw_only=True, tag="TransformerLayer"):
    """``te.TransformerLayer(width, 2 * width, 2)`` with unfused attention."""

    activation: Activation = "gelu"
    dropout: float = 0.0


class OpsLinear(Module, frozen=True, kw_only=True, tag="OpsLinear"):
    """``te.ops.Sequential(te.ops.Linear(width, width))``."""

    bias: bool = True


class TorchLinear(Module, frozen=True, kw_only=True, tag="TorchLinear"):
    """``torch.nn.Linear(width, width)``."""

    bias: bool = True


class TorchLayerNorm(Module, frozen=True, kw_only=True, tag="TorchLayerNorm"):
    """``torch.nn.LayerNorm(width)``."""


class TorchGELU(Module, frozen=True, kw_only=True, tag="TorchGELU"):
    """``torch.nn.GELU()``."""


class TorchDropout(Module, frozen=True, kw_only=True, tag="TorchDropout"):
    """``torch.nn.Dropout(p)``; or, as stochastic depth often does, one whose mask is drawn on the CPU."""

    p: float = 0.1
    on_cpu: bool = False


# --- Containers: the inner nodes of a graph. ---------------------------------------------------------


class Chain(_Data, frozen=True, tag="Chain"):
    """Nodes applied one after another; an empty chain is the identity."""

    nodes: tuple[Node, ...]


class Residual(_Data, frozen=True, tag="Residual"):
    """``x + body(x)``."""

    body: Node


class Sum(_Data, frozen=True, tag="Sum"):
    """The sum of all branches, each applied to the same input."""

    branches: tuple[Node, ...]


class Autocast(_Data, frozen=True, tag="Autocast"):
    """The body under ``te.autocast`` with the case's recipe; switched off where ``enabled`` is false."""

    body: Node
    enabled: bool = True


class GradMode(_Data, frozen=True, tag="GradMode"):
    """The body under a grad mode.

    ``inference_mode`` hands out a clone, since autograd refuses to save inference tensors.
    """

    body: Node
    mode: GradModeName


class Gain(_Data, frozen=True, tag="Gain"):
    """A second argument of a region's callable, which multiplies its result.

    It is a plain float or a tensor without gradient, given by position or by keyword.
    """

    value: float = 1.0
    as_tensor: bool = False
    by_keyword: bool = False


class Contexts(_Data, frozen=True, tag="Contexts"):
    """What ``context_fn`` returns: the context of the forward and that of the recompute."""

    forward: ContextName = "null"
    recompute: ContextName = "null"


class Region(_Data, frozen=True, tag="Region"):
    """A part of the graph that runs under the checkpoint; the direct run just calls it.

    ``function`` says what is handed to the checkpoint: the body as a ``torch.nn.Module``, a plain
    callable, or a bound method of an object that is not a module. ``results`` says what that returns: a
    tensor; or a tuple of two tensors, one without gradient and a float, which are joined to one outside.
    """

    body: Node
    use_reentrant: bool = True
    function: Literal["module", "callable", "method"] = "module"
    gain: Gain | None = None
    contexts: Contexts | None = None
    results: Literal["tensor", "tuple"] = "tensor"


Leaf: TypeAlias = (
    Linear | LayerNormLinear | LayerNormMLP | GroupedLinear | LayerNorm | RMSNorm | MultiheadAttention
    | TransformerLayer | OpsLinear | TorchLinear | TorchLayerNorm | TorchGELU | TorchDropout
)  # fmt: skip
Node: TypeAlias = Leaf | Chain | Residual | Sum | Autocast | GradMode | Region


# --- Recipes ----------------------------------------------------------------------------------------


class DelayedScaling(_Data, frozen=True, kw_only=True, tag="DelayedScaling"):
    """``transformer_engine.common.recipe.DelayedScaling``."""

    format: Literal["HYBRID", "E4M3"] = "HYBRID"
    history: int = 4
    algorithm: Literal["max", "most_recent"] = "max"
    margin: int = 0


class CurrentScaling(_Data, frozen=True, kw_only=True, tag="CurrentScaling"):
    """``transformer_engine.common.recipe.Float8CurrentScaling``."""

    format: Literal["HYBRID", "E4M3"] = "HYBRID"


class HighPrecision(_Data, frozen=True, tag="HighPrecision"):
    """FP8 off: the control, in which nothing may be pushed at all."""


Recipe: TypeAlias = DelayedScaling | CurrentScaling | HighPrecision


# --- The schedule: what happens, in order. -----------------------------------------------------------


class SetMode(_Data, frozen=True, tag="SetMode"):
    """``module.train(training)`` on the module with this number (in the order of ``modules``)."""

    module: int
    training: bool


class Forward(_Data, frozen=True, tag="Forward"):
    """Gradients cleared, then a forward on a fresh normal input of this standard deviation."""

    magnitude: float = 1.0


class Backward(_Data, frozen=True, tag="Backward"):
    """The backward of a pending forward, from a fresh normal gradient of this deviation.

    ``which`` counts the pending forwards from the oldest, 0.
    """

    magnitude: float = 1.0
    which: int = 0


class Abandon(_Data, frozen=True, tag="Abandon"):
    """A pending forward's output is dropped, and with it its graph: its backward never comes."""

    which: int = 0


class Evaluate(_Data, frozen=True, tag="Evaluate"):
    """A forward of the whole graph with gradients off, which no backward follows."""

    magnitude: float = 1.0
    mode: Literal["no_grad", "inference_mode"] = "no_grad"


class OptimizerStep(_Data, frozen=True, tag="OptimizerStep"):
    """One step of plain SGD on the parameters that are not frozen."""


Step: TypeAlias = SetMode | Forward | Backward | Abandon | Evaluate | OptimizerStep


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
    fields: dict[str, Any] = {"type": value.__struct_config__.tag} if isinstance(value, _Data) else {}
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
    if isinstance(node, Residual | Autocast | GradMode | Region):
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


def regions(case: Case) -> list[Region]:
    """Return the regions of a case; a region's number is its place in this list."""
    return [node for node in walk(case.graph) if isinstance(node, Region)]
