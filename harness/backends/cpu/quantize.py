"""Casts to and from FP8 with one scale per tensor.

Mirrors ``pytorch/csrc/extensions/cast.cpp``, ``bias.cpp`` and ``pytorch/csrc/quantizer.cpp``
(``Float8Quantizer``, ``Float8CurrentScalingQuantizer``) for Hopper. Exact in every bit but the bias
gradient, whose order of summation on a GPU is its own.
"""

# Names and arguments are the extension's own; TE's tensors are read and written by private attributes.
# ruff: noqa: A002, ARG001, SLF001

from __future__ import annotations

from typing import Any

import torch

from harness.backends.cpu.enums import torch_dtype
from harness.backends.cpu.fp8 import absolute_maximum, current_scale, fp8_values, to_fp8, transposed
from harness.backends.cpu.kernel import kernel, overwrite
from harness.backends.cpu.te_types import is_delayed, is_fp8, te_types
from harness.backends.cpu.unwritten import refuse_unless


@kernel
def quantize(
    tensor: torch.Tensor, quantizer: Any, output: Any = None, noop: torch.Tensor | None = None
) -> Any:
    """Return ``tensor`` in FP8, or fill ``output`` with it.

    ``noop``: a float32 scalar tensor; at 1 the values of ``output`` stay as they are.
    """
    values = tensor.detach()
    if output is not None:
        return _fill(output, values, quantizer, noop)
    return quantized(values, quantizer, tensor.dtype)


def quantized(
    values: torch.Tensor, quantizer: Any, dtype: torch.dtype, *, measured: torch.Tensor | None = None
) -> Any:
    """Return ``values`` in FP8, presented as a tensor of type ``dtype``.

    The amax is that of ``measured`` where given, the values before they were rounded.
    """
    _require_rowwise(values, quantizer)
    scale = _scale_for(values if measured is None else measured, quantizer)
    data = to_fp8(values, scale, quantizer.dtype)
    return build(quantizer, data, scale.reciprocal().reshape(1), dtype)


def output_as(
    values: torch.Tensor, quantizer: Any, dtype: torch.dtype, *, amax_of_unrounded: bool = False
) -> Any:
    """Return a kernel's float32 result as the caller wants it: of type ``dtype``, or quantized.

    A kernel fused with delayed scaling casts its float32 result; with current scaling the result is
    first written in ``dtype`` and then cast, because its amax must be known before. Most kernels leave the
    amax to a pass over what was written; some find it themselves, in float32: ``amax_of_unrounded``.
    """
    if quantizer is None:
        return values.to(dtype)
    if is_delayed(quantizer):
        return quantized(values, quantizer, dtype)
    return quantized(values.to(dtype), quantizer, dtype, measured=values if amax_of_unrounded else None)


def output_into(output: Any, values: torch.Tensor, quantizer: Any, dtype: torch.dtype) -> Any:
    """Fill ``output`` with a kernel's float32 result, quantized as :func:`output_as` does it."""
    return _fill(output, values if is_delayed(quantizer) else values.to(dtype), quantizer, None)


def build(quantizer: Any, data: torch.Tensor, scale_inv: torch.Tensor, dtype: torch.dtype) -> Any:
    """Return an FP8 tensor of the class that ``quantizer`` makes, with the buffers that it asks for."""
    types = te_types()
    content: dict[str, Any] = {
        "data": data if quantizer.rowwise_usage else None,
        "data_transpose": transposed(data) if quantizer.columnwise_usage else None,
        "fp8_scale_inv": scale_inv,
        "fp8_dtype": quantizer.dtype,
        "quantizer": quantizer,
    }
    if not quantizer.internal:
        return types.tensor(shape=data.shape, dtype=dtype, **content)
    if types.storage_has_fake_dtype:
        content["fake_dtype"] = dtype
    return types.storage(**content)


def _scale_for(values: torch.Tensor, quantizer: Any) -> torch.Tensor:
    """Record the amax where the quantizer keeps one, and return the scale to cast with."""
    if is_delayed(quantizer):
        amax = absolute_maximum(values)
        if amax > quantizer.amax:
            overwrite(quantizer.amax, amax)
        scale: torch.Tensor = quantizer.scale.detach()
        return scale
    return current_scale(
        absolute_maximum(values),
        quantizer.dtype,
        power_of_2=quantizer.force_pow_2_scales,
        epsilon=quantizer.amax_epsilon,
    )


def _require_rowwise(values: torch.Tensor, quantizer: Any) -> None:
    # The error of the real extension, which casts and transposes in one kernel (2.20.2 on an H200).
    if values.numel() and not quantizer.rowwise_usage:
        raise NotImplementedError("column-wise data alone cannot be made by per-tensor FP8 quantization")


def _fill(output: Any, values: torch.Tensor, quantizer: Any, noop: torch.Tensor | None) -> Any:
    """Quantize into the buffers of ``output``; mirrors ``convert_and_update_tensor``."""
    if not is_fp8(output):
        raise RuntimeError(f"{type(quantizer).__name__} must output to Float8Tensor")
    if output._data is None and output._transpose is None:
        raise RuntimeError("Float8Tensor has no data")
    _require_rowwise(values, quantizer)
    _fit_buffers(output, values, quantizer)
    if (noop is not None and float(noop) == 1.0) or values.numel() == 0:
        return output
    scale = _scale_for(values, quantizer)
    data = to_fp8(values, scale, quantizer.dtype)
    if output._data is not None:
        overwrite(output._data, data)
    if output._transpose is not None:
        overwrite(output._transpose, transposed(data))
    overwrite(output._scale_inv, scale.reciprocal())
    return output


def _fit_buffers(output: Any, values: torch.Tensor, quantizer: Any) -> None:
    """Drop the buffers of ``output`` that the quantizer does not use and add those that it lacks."""
    shape = values.shape
    if not quantizer.rowwise_usage:
        output._data = None
    elif output._data is None:
        output._data = torch.empty(shape, dtype=torch.uint8)
    if not quantizer.columnwise_usage:
        output._transpose = None
    elif output._transpose is None:
        output._transpose = torch.empty((shape[-1], *shape[:-1]), dtype=torch.uint8)
    output._transpose_invalid = not quantizer.columnwise_usage
    output._fp8_dtype = quantizer.dtype


@kernel
def create_empty_quantized_tensor(
    quantizer: Any, shape: list[int], dtype: Any, _device: Any, _pin_memory: bool = False
) -> Any:
    """Return an FP8 tensor of ``shape`` whose values are yet to be written."""
    is_delayed(quantizer)  # refuses what the emulation cannot fill later
    return build(quantizer, torch.zeros(shape, dtype=torch.uint8), torch.ones(1), torch_dtype(dtype))


@kernel
def dequantize(input: Any, otype: Any) -> torch.Tensor:
    """Return the FP8 tensor's values divided by its scale, in type ``otype``."""
    if input._data is None:
        raise RuntimeError("FP8 tensor has no row-wise data to dequantize")
    values = fp8_values(input._data, input._fp8_dtype)
    return values.mul_(input._scale_inv).to(torch_dtype(otype))


@kernel
def fp8_transpose(
    input: torch.Tensor,
    dtype: Any,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the transpose of FP8 bytes, or fill ``out`` with it."""
    result = transposed(input)
    if out is None:
        return result
    overwrite(out, result)
    return out


@kernel
def bgrad_quantize(input: torch.Tensor, quantizer: Any) -> list[Any]:
    """Return the bias gradient (the sum over all but the last dimension) and the quantized gradient."""
    bias_gradient = input.reshape(-1, input.shape[-1]).float().sum(0).to(input.dtype)
    return [bias_gradient, input if quantizer is None else quantized(input.detach(), quantizer, input.dtype)]


@kernel
def split_quantize(
    tensor: torch.Tensor,
    split_sections: list[int],
    quantizer_list: list[Any],
    disable_bulk_allocation: bool = False,
) -> list[Any]:
    """Return each section of ``tensor`` along its first dimension, quantized by its own quantizer."""
    sections = torch.split(tensor.detach(), [int(size) for size in split_sections])
    return [
        quantized(section, quantizer, tensor.dtype)
        for section, quantizer in zip(sections, quantizer_list, strict=True)
    ]


@kernel
def multi_tensor_quantize(tensor_list: list[torch.Tensor], quantizer_list: list[Any]) -> list[Any]:
    """Return each tensor, quantized by its own quantizer."""
    refuse_unless(len(tensor_list) == len(quantizer_list), "multi_tensor_quantize", "a quantizer each")
    return [
        quantized(tensor.detach(), quantizer, tensor.dtype)
        for tensor, quantizer in zip(tensor_list, quantizer_list, strict=True)
    ]


@kernel
def fused_multi_quantize(
    input_list: list[torch.Tensor], output_list: list[Any] | None, quantizer_list: list[Any], otype: Any
) -> list[Any]:
    """Return each tensor, quantized by its own quantizer and presented as of type ``otype``.

    Releases up to 2.4 have it in place of ``split_quantize``.
    """
    refuse_unless(output_list is None, "fused_multi_quantize", "output into given tensors")
    return [
        quantized(tensor.detach(), quantizer, torch_dtype(otype))
        for tensor, quantizer in zip(input_list, quantizer_list, strict=True)
    ]


@kernel
def compute_amax(input: torch.Tensor, amax: torch.Tensor) -> None:
    """Write the largest magnitude of ``input`` into ``amax`` (float32, one element)."""
    overwrite(amax, absolute_maximum(input.detach()))
