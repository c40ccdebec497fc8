"""The inputs of the golden cases, written down as formulas: no generator, the same on every torch."""

from __future__ import annotations

import math

import torch

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, -math.nan,
    1e-40, -1e-40, 3.4e38, -3.4e38, 448.0, 449.0, 464.0, 465.0,
    480.0, -500.0, 57344.0, 61439.0, 61440.0, 65504.0, -70000.0, 2.0**-6,
    2.0**-7, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-11, 2.0**-14, 2.0**-16, 2.0**-17,
)  # fmt: skip
"""Zeros, infinities, NaNs, float32 denormals, and the edges of both FP8 formats' ranges."""


def noise(*shape: int, salt: int = 0, size: float = 1.0) -> torch.Tensor:
    """Return float32 numbers spread evenly over [-size, size), multiples of size / 32768."""
    index = torch.arange(math.prod(shape), dtype=torch.int64) + 7919 * salt
    mixed = (index * 2654435761) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 13)) & 0xFFFF
    return ((mixed - 32768).float() / 32768.0 * size).reshape(shape)


def special(rows: int = 16) -> torch.Tensor:
    """Return (rows, 32): each row holds SPECIAL, turned by one place more than the row before."""
    row = torch.tensor(SPECIAL, dtype=torch.float32)
    return torch.stack([row.roll(turn) for turn in range(rows)])


def every_bfloat16() -> torch.Tensor:
    """Return (256, 256): all 65536 bit patterns."""
    return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).reshape(256, 256)


def around_ties(largest: float) -> torch.Tensor:
    """Return (n, 3) float32: midpoints between eighths, and the numbers just below and above each."""
    middle = torch.arange(1, 512, dtype=torch.float32) / 256.0 * largest / 2.0
    below = (middle.view(torch.int32) - 1).view(torch.float32)
    above = (middle.view(torch.int32) + 1).view(torch.float32)
    return torch.stack((below, middle, above), dim=1)


def to_device(tensor: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return ``tensor`` in ``dtype`` on the device of the active backend, rounded on the CPU."""
    return tensor.to(dtype).to(device="cuda")
