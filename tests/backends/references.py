"""The modules of Transformer Engine in plain torch, from the parameters of a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the size of the difference over the size of what was expected."""
    found, expected = found.float(), expected.float()
    return float((found - expected).norm() / expected.norm().clamp(min=1e-30))


def _gated(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def apply(x: torch.Tensor) -> torch.Tensor:
        first, gate = x.chunk(2, dim=-1)
        return function(first) * gate

    return apply


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _squared_relu(x: torch.Tensor) -> torch.Tensor:
    return functional.relu(x).square()


def _clamped_swiglu(x: torch.Tensor) -> torch.Tensor:
    first, gate = x.chunk(2, dim=-1)
    return _quick_gelu(first.clamp(max=7.0)) * (gate.clamp(-7.0, 7.0) + 1.0)


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": _gelu,
    "qgelu": _quick_gelu,
    "relu": functional.relu,
    "srelu": _squared_relu,
    "silu": functional.silu,
    "geglu": _gated(_gelu),
    "qgeglu": _gated(_quick_gelu),
    "reglu": _gated(functional.relu),
    "sreglu": _gated(_squared_relu),
    "swiglu": _gated(functional.silu),
    "glu": _gated(torch.sigmoid),
    "clamped_swiglu": _clamped_swiglu,
}


def _normalise(module: Any, x: torch.Tensor) -> torch.Tensor:
    weight = module.layer_norm_weight
    bias = getattr(module, "layer_norm_bias", None)
    if bias is None:
        return functional.rms_norm(x, weight.shape, weight, module.eps)
    return functional.layer_norm(x, weight.shape, weight, bias, module.eps)


def linear(module: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, module.weight, module.bias)


def layernorm_linear(module: Any, x: torch.Tensor) -> torch.Tensor:
    return linear(module, _normalise(module, x))


def layernorm_mlp(module: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = functional.linear(_normalise(module, x), module.fc1_weight, module.fc1_bias)
    return functional.linear(ACTIVATIONS[module.activation](hidden), module.fc2_weight, module.fc2_bias)


def grouped_linear(module: Any, x: torch.Tensor) -> torch.Tensor:
    halves = x.chunk(2)
    return torch.cat(
        [
            functional.linear(half, getattr(module, f"weight{index}"), getattr(module, f"bias{index}"))
            for index, half in enumerate(halves)
        ]
    )


def layernorm(module: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, module.weight.shape, module.weight, module.bias, module.eps)


def rmsnorm(module: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, module.weight.shape, module.weight, module.eps)


def operations(module: Any, x: torch.Tensor) -> torch.Tensor:
    for operation in module:
        x = linear(operation, x)
    return x


def _attend(qkv: torch.Tensor, heads: int) -> torch.Tensor:
    """Causal attention; ``qkv`` (sequence, batch, 3 * hidden), each head's q, k and v side by side."""
    length, batch, width = qkv.shape
    per_head = qkv.view(length, batch, heads, width // heads).permute(1, 2, 0, 3)
    q, k, v = per_head.chunk(3, dim=-1)
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.permute(2, 0, 1, 3).reshape(length, batch, width // 3)


def attention(module: Any, x: torch.Tensor) -> torch.Tensor:
    return linear(module.proj, _attend(linear(module.qkv, x), module.num_attention_heads))


def transformer_layer(module: Any, x: torch.Tensor) -> torch.Tensor:
    inner = module.self_attention
    mixed = _attend(layernorm_linear(inner.layernorm_qkv, x), inner.num_attention_heads)
    x = x + linear(inner.proj, mixed)
    return x + layernorm_mlp(module.layernorm_mlp, x)
