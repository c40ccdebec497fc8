"""Activation functions, plain and gated, with their backward passes.

Mirrors ``pytorch/csrc/extensions/activation.cpp`` and the formulas of ``common/util/math.h``, all of them
in float32. The GPU's ``tanhf`` and ``expf`` differ from the CPU's in the last bits, so results agree to
rounding.
"""

# Names and arguments are the extension's own.
# ruff: noqa: A002

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from harness.backends.cpu.kernel import kernel
from harness.backends.cpu.quantize import output_as

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[torch.Tensor], torch.Tensor]


class Activation(NamedTuple):
    """A function of one variable and its derivative, both float32 to float32, elementwise."""

    value: Function
    slope: Function


def gelu_values(x: torch.Tensor) -> torch.Tensor:
    """Return GELU in its tanh form."""
    return x * (0.5 + 0.5 * torch.tanh(x * (0.79788456 + 0.03567741 * x * x)))


def _gelu_slope(x: torch.Tensor) -> torch.Tensor:
    tanh = torch.tanh(0.79788456 * x * (1.0 + 0.044715 * x * x))
    inner = 0.79788456 + 0.1070322243 * x * x
    return 0.5 * x * (1.0 - tanh * tanh) * inner + 0.5 * (1.0 + tanh)


def gelu_backward_values(x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient with respect to GELU's input ``x``."""
    return gradient * _gelu_slope(x)


def _sigmoid_slope(x: torch.Tensor) -> torch.Tensor:
    sigmoid = torch.sigmoid(x)
    return sigmoid * (1.0 - sigmoid)


def _sigmoid_linear(alpha: float) -> Activation:
    """Return ``x * sigmoid(alpha * x)``: SiLU at 1, quick GELU at 1.702."""
    return Activation(
        lambda x: x * torch.sigmoid(alpha * x),
        lambda x: alpha * x * _sigmoid_slope(alpha * x) + torch.sigmoid(alpha * x),
    )


_GELU = Activation(gelu_values, _gelu_slope)
_QUICK_GELU = _sigmoid_linear(1.702)
_RELU = Activation(lambda x: x.clamp(min=0.0), lambda x: (x > 0).float())
_SQUARED_RELU = Activation(lambda x: torch.where(x > 0, x * x, 0.0), lambda x: (2.0 * x).clamp(min=0.0))
_SILU = _sigmoid_linear(1.0)
_SIGMOID = Activation(torch.sigmoid, _sigmoid_slope)

_PLAIN = {"gelu": _GELU, "qgelu": _QUICK_GELU, "relu": _RELU, "srelu": _SQUARED_RELU, "silu": _SILU}
_GATED = {
    "geglu": _GELU,
    "qgeglu": _QUICK_GELU,
    "reglu": _RELU,
    "sreglu": _SQUARED_RELU,
    "swiglu": _SILU,
    "glu": _SIGMOID,
}


def _output(values: torch.Tensor, quantizer: Any, dtype: torch.dtype) -> Any:
    # Found bit for bit with bfloat16 outputs on an H200, TE 2.20.2.
    return output_as(values, quantizer, dtype, amax_of_unrounded=True)


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split the last dimension: the activation acts on the first half, the second is the gate."""
    first, second = x.detach().float().chunk(2, dim=-1)
    return first, second


def _plain_forward(activation: Activation) -> Callable[..., Any]:
    def forward(input: torch.Tensor, quantizer: Any) -> Any:
        return _output(activation.value(input.detach().float()), quantizer, input.dtype)

    return forward


def _plain_gradient(activation: Activation, grad: torch.Tensor, fwd_input: torch.Tensor) -> torch.Tensor:
    x = fwd_input.detach().float()
    return grad.detach().float().reshape(x.shape) * activation.slope(x)


def _plain_backward(activation: Activation) -> Callable[..., Any]:
    def backward(grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any) -> Any:
        return _output(_plain_gradient(activation, grad, fwd_input), quantizer, fwd_input.dtype)

    return backward


def _plain_backward_with_bias(activation: Activation) -> Callable[..., Any]:
    def backward(grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any) -> list[Any]:
        gradient = _plain_gradient(activation, grad, fwd_input)
        bias_gradient = gradient.reshape(-1, gradient.shape[-1]).sum(0).to(grad.dtype)
        return [bias_gradient, _output(gradient, quantizer, fwd_input.dtype)]

    return backward


def _gated_forward(activation: Activation) -> Callable[..., Any]:
    def forward(input: torch.Tensor, quantizer: Any) -> Any:
        x, gate = _halves(input)
        return _output(activation.value(x) * gate, quantizer, input.dtype)

    return forward


def _gated_backward(activation: Activation) -> Callable[..., Any]:
    def backward(grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any) -> Any:
        x, gate = _halves(fwd_input)
        upstream = grad.detach().float().reshape(x.shape)
        gradient = torch.cat((activation.slope(x) * upstream * gate, activation.value(x) * upstream), dim=-1)
        return _output(gradient, quantizer, fwd_input.dtype)

    return backward


@kernel
def clamped_swiglu(
    input: torch.Tensor,
    quantizer: Any,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """Return ``min(x, limit) * sigmoid(alpha * min(x, limit)) * (clamp(gate) + offset)``.

    The gate is clamped to [-limit, limit].
    """
    x, gate = _halves(input)
    value = _sigmoid_linear(alpha).value(x.clamp(max=limit))
    return _output(value * (gate.clamp(-limit, limit) + glu_linear_offset), quantizer, input.dtype)


@kernel
def clamped_dswiglu(
    grad: torch.Tensor,
    fwd_input: torch.Tensor,
    quantizer: Any,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """Return the gradient of :func:`clamped_swiglu`: zero where a clamp acts."""
    x, gate = _halves(fwd_input)
    upstream = grad.detach().float().reshape(x.shape)
    activation, clamped = _sigmoid_linear(alpha), x.clamp(max=limit)
    slope = torch.where(x <= limit, activation.slope(clamped), 0.0)
    gate_slope = (gate.abs() <= limit).float()
    gradient = torch.cat(
        (
            slope * upstream * (gate.clamp(-limit, limit) + glu_linear_offset),
            activation.value(clamped) * upstream * gate_slope,
        ),
        dim=-1,
    )
    return _output(gradient, quantizer, fwd_input.dtype)


def activation_kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernels by the extension's names for them: ``gelu``, ``dgelu``, ``dbias_dgelu``."""
    kernels: dict[str, Callable[..., Any]] = {
        "clamped_swiglu": clamped_swiglu,
        "clamped_dswiglu": clamped_dswiglu,
    }
    for name, activation in _PLAIN.items():
        kernels[name] = kernel(_plain_forward(activation))
        kernels[f"d{name}"] = kernel(_plain_backward(activation))
        kernels[f"dbias_d{name}"] = kernel(_plain_backward_with_bias(activation))
    for name, activation in _GATED.items():
        kernels[name] = kernel(_gated_forward(activation))
        kernels[f"d{name}"] = kernel(_gated_backward(activation))
    return kernels
