"""FP8 arithmetic: casts, scales and transposes, bit for bit as the CUDA kernels do them.

All scale arithmetic is in float32 tensors, because the kernels divide and multiply in float32.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.backends.cpu.enums import DType, torch_dtype

FP8_MAX: dict[int, float] = {DType.kFloat8E4M3: 448.0, DType.kFloat8E5M2: 57344.0}
FLOAT32_MAX = torch.finfo(torch.float32).max
# Tensors to divide by tensors: torch divides a number by a tensor in two roundings.
_LARGEST = {dtype: torch.tensor(largest) for dtype, largest in FP8_MAX.items()}
_EXPONENT_BITS = -0x00800000  # 0xFF800000 as a signed 32-bit integer: sign and exponent


def to_fp8(values: torch.Tensor, scale: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Return ``values * scale`` as FP8 bytes (uint8, same shape).

    float32 product, round to nearest even, saturating: an infinity becomes the largest finite value, a
    NaN stays one. Mirrors ``common/util/cast_kernels.cuh`` and the ``__nv_fp8`` constructors it uses.
    """
    largest = FP8_MAX[dtype]
    scaled = (values.float() * scale).clamp_(-largest, largest)
    # The GPU writes one byte for every NaN, 0x7F; torch would keep the sign.
    return scaled.nan_to_num_(nan=torch.nan).to(torch_dtype(dtype)).view(torch.uint8)


def fp8_values(data: torch.Tensor, dtype: Any) -> torch.Tensor:
    """Return the float32 values of FP8 bytes, not yet divided by the scale."""
    return data.view(torch_dtype(dtype)).float()


def transposed(data: torch.Tensor) -> torch.Tensor:
    """Return the transpose of ``data`` seen as a matrix: shape (last, *others), contiguous.

    Mirrors ``make_transpose_shape`` in ``pytorch/csrc/quantizer.cpp``.
    """
    if data.dim() < 2:
        return data.clone()
    matrix = data.reshape(-1, data.shape[-1])
    return matrix.t().contiguous().reshape(data.shape[-1], *data.shape[:-1])


def absolute_maximum(values: torch.Tensor) -> torch.Tensor:
    """Return the largest magnitude in ``values`` as a float32 scalar tensor; NaNs do not count.

    The kernels reduce with ``fmaxf`` from 0, which prefers any number to a NaN.
    """
    if values.numel() == 0:
        return torch.zeros(())
    amax = values.abs().amax().float()
    if amax.isnan():
        amax = values.abs().nan_to_num(nan=0.0, posinf=torch.inf).amax().float()
    return amax


def current_scale(amax: torch.Tensor, dtype: Any, *, power_of_2: bool, epsilon: float) -> torch.Tensor:
    """Return the scale that maps ``amax`` to the largest FP8 value (float32 scalar tensor).

    1 for an ``amax`` of zero or infinity; the largest float32 where the quotient overflows. Mirrors
    ``compute_scale_from_amax`` in ``common/recipe/recipe_common.cuh``.
    """
    amax = amax.clamp(min=epsilon)
    if not (0.0 < float(amax) < torch.inf):
        return torch.ones(())
    scale = (_LARGEST[dtype] / amax).clamp_(max=FLOAT32_MAX)
    if power_of_2:
        scale = (scale.view(torch.int32) & _EXPONENT_BITS).view(torch.float32)
    return scale
