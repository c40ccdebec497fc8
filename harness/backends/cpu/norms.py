"""LayerNorm and RMSNorm, forward and backward.

Mirrors ``pytorch/csrc/extensions/normalization.cpp`` and ``common/normalization``. Statistics and results
are float32 until the end; the order of summation is torch's, so results agree to rounding.
"""

# Names and arguments are the extension's own.
# ruff: noqa: A002, ARG001

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.backends.cpu.enums import torch_dtype
from harness.backends.cpu.kernel import kernel, overwrite
from harness.backends.cpu.quantize import output_as, output_into

if TYPE_CHECKING:
    import torch


def _gamma(weight: torch.Tensor, zero_centered: bool) -> torch.Tensor:
    gamma = weight.detach().float()
    return gamma + 1.0 if zero_centered else gamma


def _output(values: torch.Tensor, ln_out: torch.Tensor | None, quantizer: Any, otype: Any) -> Any:
    if ln_out is None:
        return output_as(values, quantizer, torch_dtype(otype))
    if quantizer is not None:
        # Until 2.2 LayerNormLinear allocates the FP8 output itself.
        return output_into(ln_out, values, quantizer, torch_dtype(otype))
    overwrite(ln_out, values)
    return ln_out


@kernel
def layernorm_fwd(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    ln_out: torch.Tensor | None,
    quantizer: Any,
    otype: Any,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[Any]:
    """Return [normalised input (n, h), mean (n), reciprocal deviation (n)]; the statistics in float32."""
    x = input.detach().float()
    mean = x.mean(-1, keepdim=True)
    centered = x - mean
    rsigma = (centered.square().mean(-1, keepdim=True) + eps).rsqrt()
    values = centered * rsigma * _gamma(weight, zero_centered_gamma)
    if bias is not None:
        values.add_(bias.detach().float())
    return [_output(values, ln_out, quantizer, otype), mean.reshape(-1), rsigma.reshape(-1)]


@kernel
def rmsnorm_fwd(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    ln_out: torch.Tensor | None,
    quantizer: Any,
    otype: Any,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[Any]:
    """Return [normalised input (n, h), None, reciprocal root mean square (n)]."""
    x = input.detach().float()
    rsigma = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    values = x * rsigma * _gamma(weight, zero_centered_gamma)
    return [_output(values, ln_out, quantizer, otype), None, rsigma.reshape(-1)]


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().float().reshape(-1, tensor.shape[-1])


@kernel
def layernorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    mu: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[torch.Tensor]:
    """Return the gradients of input, weight and bias."""
    upstream = _rows(dz)
    normalised = (_rows(x) - mu.reshape(-1, 1)) * rsigma.reshape(-1, 1)
    scaled = upstream * _gamma(gamma, zero_centered_gamma)
    along = (scaled * normalised).mean(-1, keepdim=True)
    dx = (scaled - normalised * along - scaled.mean(-1, keepdim=True)) * rsigma.reshape(-1, 1)
    dgamma = (upstream * normalised).sum(0)
    return [dx.reshape(x.shape).to(x.dtype), dgamma.to(gamma.dtype), upstream.sum(0).to(gamma.dtype)]


def _rms_gradients(
    dz: torch.Tensor, x: torch.Tensor, rsigma: torch.Tensor, gamma: torch.Tensor, zero_centered: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    upstream = _rows(dz)
    normalised = _rows(x) * rsigma.reshape(-1, 1)
    scaled = upstream * _gamma(gamma, zero_centered)
    along = (scaled * normalised).mean(-1, keepdim=True)
    dx = (scaled - normalised * along) * rsigma.reshape(-1, 1)
    return dx.reshape(x.shape), (upstream * normalised).sum(0).to(gamma.dtype)


@kernel
def rmsnorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[torch.Tensor]:
    """Return the gradients of input and weight."""
    dx, dgamma = _rms_gradients(dz, x, rsigma, gamma, zero_centered_gamma)
    return [dx.to(x.dtype), dgamma]


@kernel
def rmsnorm_bwd_add(
    dz: torch.Tensor,
    x: torch.Tensor,
    add: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    sm_margin: int,
    zero_centered_gamma: bool,
) -> list[torch.Tensor]:
    """Return the gradients of input, with ``add`` added to it, and of weight."""
    dx, dgamma = _rms_gradients(dz, x, rsigma, gamma, zero_centered_gamma)
    return [(dx + add.detach().float().reshape(dx.shape)).to(x.dtype), dgamma]
