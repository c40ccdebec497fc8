"""From a leaf of a case's graph to its torch module, one small factory per kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import transformer_engine.pytorch as te

from harness import case as c
from harness.backends import te_version
from harness.errors import ReleaseLacks

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_HEADS = 2
_Factory = Callable[[Any, c.Case, torch.device], torch.nn.Module]
Tracker = Callable[[], Any] | None
"""``get_rng_state_tracker`` of TE's modules: returns the ``CudaRNGStatesTracker`` to draw dropout under."""


class RowsModule(torch.nn.Module):
    """A grouped linear over [..., width]: the rows flattened and split evenly over the groups."""

    def __init__(self, grouped: torch.nn.Module, groups: int) -> None:
        super().__init__()
        self.grouped = grouped
        self.groups = groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        flat = x.reshape(-1, x.shape[-1])
        out: torch.Tensor = self.grouped(flat, [flat.shape[0] // self.groups] * self.groups)
        return out.reshape(x.shape)


class HostDropout(torch.nn.Module):
    """Dropout whose mask is drawn from the CPU's generator, wherever its input lives."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map any shape to the same."""
        if not self.training:
            return x
        # By name: on the cpu backend what is drawn without a generator comes from the emulated GPU's.
        generator = torch.random.default_generator  # type: ignore[attr-defined]
        drawn = torch.rand(x.shape, generator=generator)
        return x * ((drawn >= self.p) / (1 - self.p)).to(x)


def make_leaf(
    node: c.Leaf, case: c.Case, device: torch.device, tracker: Tracker, *, recompute: bool
) -> torch.nn.Module:
    """Return the torch module of a leaf, its parameters drawn from the process's generators.

    ``recompute`` false makes one of a direct run, where also a module that can recompute itself does not.
    """
    if isinstance(node, c.LayerNormMLP):
        module = _layernorm_mlp(node, case, device, recompute=recompute and node.recompute)
    elif isinstance(node, c.MultiheadAttention):
        module = _attention(node, case, device, tracker)
    elif isinstance(node, c.TransformerLayer):
        module = _transformer_layer(node, case, device, tracker)
    else:
        module = _FACTORIES[type(node)](node, case, device)
    module.train(node.training)
    if node.frozen:
        module.requires_grad_(False)
    return module


def _te(case: c.Case, device: torch.device) -> dict[str, Any]:
    return {"params_dtype": DTYPES[case.dtype], "device": device}


def _torch(case: c.Case, device: torch.device) -> dict[str, Any]:
    return {"dtype": DTYPES[case.dtype], "device": device}


def _linear(node: c.Linear, case: c.Case, device: torch.device) -> torch.nn.Module:
    module: torch.nn.Module = te.Linear(case.width, case.width, bias=node.bias, **_te(case, device))
    return module


def _layernorm_linear(node: c.LayerNormLinear, case: c.Case, device: torch.device) -> torch.nn.Module:
    module: torch.nn.Module = te.LayerNormLinear(
        case.width, case.width, bias=node.bias, normalization=node.normalization, **_te(case, device)
    )
    return module


def _layernorm_mlp(
    node: c.LayerNormMLP, case: c.Case, device: torch.device, *, recompute: bool
) -> torch.nn.Module:
    # Given only where it is wanted: TE has had the option since 2.11.
    options: dict[str, Any] = {"checkpoint": True} if recompute else {}
    if options and "checkpoint" not in inspect.signature(te.LayerNormMLP).parameters:
        raise ReleaseLacks(te_version(), "LayerNormMLP that recomputes itself")
    module: torch.nn.Module = te.LayerNormMLP(
        case.width,
        2 * case.width,
        bias=node.bias,
        normalization=node.normalization,
        activation=node.activation,
        **options,
        **_te(case, device),
    )
    return module


def _grouped_linear(node: c.GroupedLinear, case: c.Case, device: torch.device) -> torch.nn.Module:
    grouped = te.GroupedLinear(node.groups, case.width, case.width, bias=node.bias, **_te(case, device))
    return RowsModule(grouped, node.groups)


def _layernorm(_node: c.LayerNorm, case: c.Case, device: torch.device) -> torch.nn.Module:
    module: torch.nn.Module = te.LayerNorm(case.width, **_torch(case, device))
    return module


def _rmsnorm(_node: c.RMSNorm, case: c.Case, device: torch.device) -> torch.nn.Module:
    module: torch.nn.Module = te.RMSNorm(case.width, **_torch(case, device))
    return module


def _attending(
    node: c.MultiheadAttention | c.TransformerLayer, case: c.Case, device: torch.device, tracker: Tracker
) -> dict[str, Any]:
    return {
        "attention_dropout": node.dropout,
        # TE cannot split a quantized parameter in three: it then keeps query, key and value fused.
        "fuse_qkv_params": case.quantized_parameters,
        "get_rng_state_tracker": tracker,
        **_te(case, device),
    }


def _attention(
    node: c.MultiheadAttention, case: c.Case, device: torch.device, tracker: Tracker
) -> torch.nn.Module:
    module: torch.nn.Module = te.MultiheadAttention(
        case.width,
        _HEADS,
        input_layernorm=node.input_layernorm,
        attn_mask_type="no_mask",
        **_attending(node, case, device, tracker),
    )
    return module


def _transformer_layer(
    node: c.TransformerLayer, case: c.Case, device: torch.device, tracker: Tracker
) -> torch.nn.Module:
    module: torch.nn.Module = te.TransformerLayer(
        case.width,
        2 * case.width,
        _HEADS,
        hidden_dropout=node.dropout,
        activation=node.activation,
        self_attn_mask_type="no_mask",
        **_attending(node, case, device, tracker),
    )
    return module


def _ops_linear(node: c.OpsLinear, case: c.Case, device: torch.device) -> torch.nn.Module:
    linear = te.ops.Linear(case.width, case.width, bias=node.bias, **_torch(case, device))
    module: torch.nn.Module = te.ops.Sequential(linear)
    return module


def _torch_linear(node: c.TorchLinear, case: c.Case, device: torch.device) -> torch.nn.Module:
    return torch.nn.Linear(case.width, case.width, bias=node.bias, **_torch(case, device))


def _torch_layernorm(_node: c.TorchLayerNorm, case: c.Case, device: torch.device) -> torch.nn.Module:
    return torch.nn.LayerNorm(case.width, **_torch(case, device))


def _gelu(_node: c.TorchGELU, _case: c.Case, _device: torch.device) -> torch.nn.Module:
    return torch.nn.GELU()


def _dropout(node: c.TorchDropout, _case: c.Case, _device: torch.device) -> torch.nn.Module:
    return HostDropout(node.p) if node.on_cpu else torch.nn.Dropout(node.p)


_FACTORIES: dict[type[c.Module], _Factory] = {
    c.Linear: _linear,
    c.LayerNormLinear: _layernorm_linear,
    c.GroupedLinear: _grouped_linear,
    c.LayerNorm: _layernorm,
    c.RMSNorm: _rmsnorm,
    c.OpsLinear: _ops_linear,
    c.TorchLinear: _torch_linear,
    c.TorchLayerNorm: _torch_layernorm,
    c.TorchGELU: _gelu,
    c.TorchDropout: _dropout,
}
