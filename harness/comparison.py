"""Compares tensors of two runs bit by bit: one fused test, and only on a mismatch a closer look.

There is no tolerance: TE's modules are deterministic on one device, and a tolerance would hide a wrong
scale. What is not deterministic in TE is switched off for all runs (harness.backends).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

import torch

from harness.trace import Quantity, TensorKey, Trace
from harness.violations import Difference

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


Row: TypeAlias = tuple[TensorKey, Difference | None, str, str]
"""Where two runs differ: the key, how far, in words, and the name of the parameter or FP8 state."""


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits; NaNs are equal to themselves."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(_bits(a), _bits(b))


def compare_tensors(quantity: Quantity, direct: Trace, checkpointed: Trace) -> Iterator[Row]:
    """Yield where the two traces differ in one quantity, at the first iteration where they do.

    Only iterations that both runs reached are compared.
    """
    expected = {key: t for key, t in direct.tensors.items() if key.quantity == quantity}
    actual = {key: t for key, t in checkpointed.tensors.items() if key.quantity == quantity}
    keys = [key for key in expected if key in actual]
    if _all_equal([expected[key] for key in keys], [actual[key] for key in keys]):
        return
    first: int | None = None
    for key in keys:
        if first is not None and key.iteration > first:
            return
        for row in _differences(key, expected[key], actual[key], direct):
            first = key.iteration
            yield row


def identical(quantities: Collection[Quantity], direct: Trace, checkpointed: Trace) -> bool:
    """Whether two traces hold the same tensors of several quantities, as far as both hold them."""
    keys = [key for key in direct.tensors if key.quantity in quantities and key in checkpointed.tensors]
    return _all_equal([direct.tensors[key] for key in keys], [checkpointed.tensors[key] for key in keys])


def _all_equal(expected: list[torch.Tensor | None], actual: list[torch.Tensor | None]) -> bool:
    """One comparison per dtype, so that a GPU is waited for once rather than once per tensor."""
    groups: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for a, b in zip(expected, actual, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
        elif a.shape != b.shape or a.dtype != b.dtype:
            return False
        else:
            mine, other = groups.setdefault(a.dtype, ([], []))
            mine.append(a.reshape(-1))
            other.append(b.reshape(-1))
    with torch.inference_mode():
        return all(torch.equal(_bits(torch.cat(a)), _bits(torch.cat(b))) for a, b in groups.values())


def _differences(
    key: TensorKey, a: torch.Tensor | None, b: torch.Tensor | None, direct: Trace
) -> Iterator[Row]:
    if a is None or b is None:
        if a is not b:
            expected, actual = ("none", "one") if a is None else ("one", "none")
            yield key, None, f"expected {expected}, got {actual}", key.name
        return
    if a.shape != b.shape or a.dtype != b.dtype:
        message = f"expected {a.dtype} {tuple(a.shape)}, got {b.dtype} {tuple(b.shape)}"
        yield key, None, message, key.name
        return
    for name, mine, other in _parts(key, a, b, direct):
        difference = measure(mine, other)
        if difference.elements:
            yield key, difference, "not equal to the direct run", name


def _parts(
    key: TensorKey, a: torch.Tensor, b: torch.Tensor, direct: Trace
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Split packed FP8 state into its named parts; anything else is one part."""
    if key.quantity != "FP8 state":
        yield key.name, a, b
        return
    layout = direct.state_layout[key.iteration]
    sizes = [size for _, size in layout]
    for (name, _), mine, other in zip(layout, torch.split(a, sizes), torch.split(b, sizes), strict=True):
        yield name, mine, other


def measure(expected: torch.Tensor, actual: torch.Tensor) -> Difference:
    """Return how far two tensors of one shape and dtype are apart; by bits, so NaNs may be equal."""
    differing = int((_bits(expected) != _bits(actual)).sum())
    a, b = expected.double(), actual.double()
    gap = (a - b).abs()
    same = (_bits(expected) == _bits(actual)) | (a == b)
    absolute = float(gap.masked_fill(same, 0.0).nan_to_num(nan=float("inf")).max()) if gap.numel() else 0.0
    largest = float(a.abs().nan_to_num(nan=0.0).max()) if a.numel() else 0.0
    relative = absolute / largest if largest else (float("inf") if absolute else 0.0)
    return Difference(absolute, relative, differing, expected.numel())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(_BITS[tensor.element_size()])
