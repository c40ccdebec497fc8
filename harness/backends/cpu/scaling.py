"""The delayed-scaling update: roll the amax histories, compute the next scales.

Mirrors ``kernel_bulk`` in ``common/recipe/delayed_scaling.cu``. Exact in every bit.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.backends.cpu.fp8 import FLOAT32_MAX, FP8_MAX
from harness.backends.cpu.kernel import kernel, overwrite


@kernel
def fused_amax_and_scale_update_after_reduction(
    amax_reduction_buffer: torch.Tensor,
    amax_histories: list[torch.Tensor],
    scales: list[torch.Tensor],
    amax_compute_algo: str,
    fp8_dtype: Any,
    margin: float,
) -> None:
    """Update all histories (length, n) and scales (n) of one direction in place.

    ``amax_reduction_buffer`` holds the new amaxes of all modules, one after the other; where one is 0 the
    module's own history[0] counts. A column with nothing recorded keeps its history and its scale.
    """
    # One pass over the columns of all modules: the work is small, and calls into torch are what costs.
    history, scale = torch.cat(amax_histories, dim=1), torch.cat(scales)
    newest = torch.where(amax_reduction_buffer != 0, amax_reduction_buffer, history[0])
    rolls = newest != 0
    rolled = torch.cat((history[1:], newest[None]))
    amax = newest if amax_compute_algo == "most_recent" else torch.where(rolls, _maximum(rolled), 0.0)
    rolled[0] = 0
    largest = torch.tensor(FP8_MAX[fp8_dtype] * 2.0**-margin, dtype=torch.float32)
    sizes = [tensor.numel() for tensor in scales]
    new_histories = torch.split(torch.where(rolls, rolled, history), sizes, dim=1)
    new_scales = torch.split(_next_scale(amax, scale, largest), sizes)
    for destination, source in zip((*amax_histories, *scales), (*new_histories, *new_scales), strict=True):
        overwrite(destination, source)


def _maximum(columns: torch.Tensor) -> torch.Tensor:
    """Return each column's maximum; NaNs do not count."""
    maximum = columns.amax(0)
    if maximum.isnan().any():
        maximum = columns.nan_to_num(nan=0.0, posinf=torch.inf).amax(0)
    return maximum


def _next_scale(amax: torch.Tensor, scale: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Return ``largest / amax`` where amax is positive and finite, else the present scale."""
    usable = (amax > 0) & (amax < torch.inf)
    return torch.where(usable, largest / amax, scale).clamp_(max=FLOAT32_MAX)
