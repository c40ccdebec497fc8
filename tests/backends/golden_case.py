"""A call of the extension whose result is recorded on a GPU and compared everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from harness.backends import te_version
from harness.errors import ReleaseLacks

if TYPE_CHECKING:
    from collections.abc import Callable

Outputs = dict[str, torch.Tensor]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    """One call. ``run`` builds its inputs, calls, and returns every tensor that the call wrote.

    ``exact``: the emulation must agree bit for bit. Otherwise results may differ by rounding, and
    ``tolerance`` is the relative error allowed, measured against the largest element.
    """

    family: str
    name: str
    run: Callable[[], Outputs]
    exact: bool = True
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"{self.family}-{self.name}"


def extension() -> Any:
    """Return the extension that the active backend has loaded."""
    import transformer_engine_torch

    return transformer_engine_torch


def fp8_types() -> dict[str, Any]:
    """Return the two FP8 formats by the names that cases use for them."""
    kinds = extension().DType
    return {"e4m3": kinds.kFloat8E4M3, "e5m2": kinds.kFloat8E5M2}


def delayed_quantizer(fp8: str, *, scale: float = 1.0, amax: float = 0.0, usage: str = "both") -> Any:
    """Return a delayed-scaling quantizer with the given state; ``usage``: "row", "column" or "both"."""
    from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer

    return Float8Quantizer(
        scale=torch.tensor([scale], dtype=torch.float32, device="cuda"),
        amax=torch.tensor([amax], dtype=torch.float32, device="cuda"),
        fp8_dtype=fp8_types()[fp8],
        rowwise=usage != "column",
        columnwise=usage != "row",
    )


def current_quantizer(
    fp8: str, *, power_of_2: bool = False, epsilon: float = 0.0, usage: str = "both"
) -> Any:
    """Return a current-scaling quantizer; raises ReleaseLacks where the release has none."""
    from transformer_engine.pytorch.tensor import float8_tensor

    if not hasattr(float8_tensor, "Float8CurrentScalingQuantizer"):
        raise ReleaseLacks(te_version(), "current scaling")
    return float8_tensor.Float8CurrentScalingQuantizer(
        fp8_types()[fp8],
        torch.device("cuda", 0),
        rowwise=usage != "column",
        columnwise=usage != "row",
        force_pow_2_scales=power_of_2,
        amax_epsilon=epsilon,
    )


def parts(result: Any, prefix: str = "") -> Outputs:
    """Return the buffers of a result: of an FP8 tensor its data, transpose and inverse scale."""
    if result is None:
        return {}
    if not hasattr(result, "_scale_inv"):
        return {f"{prefix}out": result.detach()}
    found = {"data": result._data, "transpose": result._transpose, "scale_inv": result._scale_inv}
    return {prefix + name: tensor.detach() for name, tensor in found.items() if tensor is not None}
