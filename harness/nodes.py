"""Nodes: the modules and containers of which a case's graph is a tree, as plain data."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from harness.plain_data import Data
from harness.recipe import Recipe

Activation: TypeAlias = Literal[
    "gelu", "geglu", "glu", "qgelu", "qgeglu", "relu", "reglu", "srelu", "sreglu", "silu", "swiglu",
    "clamped_swiglu",
]  # fmt: skip
Normalization: TypeAlias = Literal["LayerNorm", "RMSNorm"]
GradModeName: TypeAlias = Literal[
    "no_grad", "enable_grad", "set_grad_enabled_false", "set_grad_enabled_true", "inference_mode"
]
GRADIENTS_ON: Final[tuple[GradModeName, ...]] = ("enable_grad", "set_grad_enabled_true")
GRADIENTS_CUT: Final[tuple[GradModeName, ...]] = ("no_grad", "set_grad_enabled_false", "inference_mode")
ContextName: TypeAlias = Literal["null", "no_grad", "enable_grad"]

# --- Modules: the leaves of a graph. Each maps [rows / 2, 2, width] to the same shape. ---------------


class Module(Data, frozen=True, kw_only=True):
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
    recompute: bool = False
    """``checkpoint_core_attention=True``, in the checkpointed run alone."""


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


class Chain(Data, frozen=True, tag="Chain"):
    """Nodes applied one after another; an empty chain is the identity."""

    nodes: tuple[Node, ...]


class Residual(Data, frozen=True, tag="Residual"):
    """``x + body(x)``; in place, the sum is written over a copy of ``x``, which the body was given."""

    body: Node
    in_place: bool = False


class Sum(Data, frozen=True, tag="Sum"):
    """The sum of all branches, each applied to the same input."""

    branches: tuple[Node, ...]


class Autocast(Data, frozen=True, tag="Autocast"):
    """The body under ``te.autocast``; switched off where ``enabled`` is false.

    The recipe is the case's unless it has one of its own.
    """

    body: Node
    enabled: bool = True
    recipe: Recipe | None = None


class Discard(Data, frozen=True, tag="Discard"):
    """The body is run, its result dropped, and the input passed on."""

    body: Node


class Reuse(Data, frozen=True, tag="Reuse"):
    """The module with this number, which comes earlier in the graph, once more."""

    module: int


class Twin(Data, frozen=True, tag="Twin"):
    """A deep copy of the module with this number, which comes earlier in the graph, as of a target network.

    It is made with the model, and made anew by ``DeepCopy(beside=True)``. A module has one at most.
    """

    module: int


class GradMode(Data, frozen=True, tag="GradMode"):
    """The body under a grad mode.

    ``inference_mode`` hands out a clone, since autograd refuses to save inference tensors.
    """

    body: Node
    mode: GradModeName


class Gain(Data, frozen=True, tag="Gain"):
    """A second argument of a region's callable, which multiplies its result.

    It is a plain float or a tensor without gradient, given by position or by keyword.
    """

    value: float = 1.0
    as_tensor: bool = False
    by_keyword: bool = False


class Contexts(Data, frozen=True, tag="Contexts"):
    """What ``context_fn`` returns: the context of the forward and that of the recompute."""

    forward: ContextName = "null"
    recompute: ContextName = "null"


class Region(Data, frozen=True, tag="Region"):
    """A part of the graph that runs under the checkpoint; the direct run just calls it.

    ``function`` says what is handed to the checkpoint: the body as a ``torch.nn.Module``, a plain
    callable, or a bound method of an object that is not a module. ``results`` says what that returns: a
    tensor; or a tuple of two tensors, one without gradient and a float, which are joined to one outside.
    ``checkpointer`` says what checkpoints it: the function under test, PyTorch's own, or PyTorch's
    ``checkpoint_wrapper`` around the body with the function under test. ``given`` says how often and in which
    way the callable gets its input, all of which it adds up.
    """

    body: Node
    use_reentrant: bool = True
    function: Literal["module", "callable", "method"] = "module"
    gain: Gain | None = None
    contexts: Contexts | None = None
    results: Literal["tensor", "tuple"] = "tensor"
    checkpointer: Literal["tested", "torch", "wrapper"] = "tested"
    given: Literal["once", "twice", "by keyword too", "in a list too"] = "once"


Leaf: TypeAlias = (
    Linear | LayerNormLinear | LayerNormMLP | GroupedLinear | LayerNorm | RMSNorm | MultiheadAttention
    | TransformerLayer | OpsLinear | TorchLinear | TorchLayerNorm | TorchGELU | TorchDropout
)  # fmt: skip
Node: TypeAlias = Leaf | Reuse | Twin | Chain | Residual | Sum | Autocast | GradMode | Discard | Region
