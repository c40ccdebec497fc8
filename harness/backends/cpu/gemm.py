"""Matrix products of FP8 and ordinary tensors.

Mirrors ``pytorch/csrc/extensions/gemm.cpp`` (``gemm``, ``te_general_grouped_gemm``) on Hopper. Products
are summed in float32 whatever the accumulator asked for, and the scales multiply the finished sum, as in
cuBLAS; the order of summation is torch's, so results agree to rounding and not bit for bit. For float32
operands TE lets cuBLAS use TF32, which is coarser than the emulation (measured on an H200).
"""

# Names and arguments are the extension's own; TE's tensors are read by their private attributes.
# ruff: noqa: ARG001, N803, SLF001

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from harness.backends.cpu.activations import gelu_backward_values, gelu_values
from harness.backends.cpu.enums import torch_dtype
from harness.backends.cpu.fp8 import fp8_values
from harness.backends.cpu.kernel import kernel, overwrite
from harness.backends.cpu.quantize import output_as
from harness.backends.cpu.te_types import is_fp8
from harness.backends.cpu.unwritten import refuse_unless

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class _Operand(NamedTuple):
    """A factor as a float32 matrix, the scale its values are still to be multiplied by, its outer shape."""

    matrix: torch.Tensor
    scale_inv: torch.Tensor | None
    outer: Sequence[int]


def _operand(tensor: Any, rowwise: bool) -> _Operand:
    """Read ``tensor`` as the matrix (all other dimensions, last); FP8 from the buffer that Hopper reads."""
    if not is_fp8(tensor):
        return _Operand(tensor.detach().float().reshape(-1, tensor.shape[-1]), None, tensor.shape[:-1])
    if rowwise:
        if tensor._data is None:
            raise RuntimeError("FP8 GEMM needs row-wise data, and the tensor has none")
        values = fp8_values(tensor._data, tensor._fp8_dtype)
        return _Operand(values.reshape(-1, values.shape[-1]), tensor._scale_inv, values.shape[:-1])
    if tensor._transpose is None or tensor._transpose_invalid:
        raise RuntimeError("FP8 GEMM needs column-wise data, and the tensor has none")
    values = fp8_values(tensor._transpose, tensor._fp8_dtype)
    return _Operand(values.reshape(values.shape[0], -1).t(), tensor._scale_inv, values.shape[1:])


def _product(a: _Operand, transa: bool, b: _Operand, transb: bool) -> torch.Tensor:
    """Return op(B) @ op(A) in float32: the row-major reading of cuBLAS's column-major op(A) op(B)."""
    left = b.matrix.t() if transb else b.matrix
    product = left @ (a.matrix.t() if transa else a.matrix)
    for scale_inv in (a.scale_inv, b.scale_inv):
        if scale_inv is not None:
            product.mul_(scale_inv)
    return product


def _accumulated(product: torch.Tensor, destination: torch.Tensor, beta: float) -> torch.Tensor:
    """Return ``product + beta * destination``, rounded once."""
    return product.add_(destination.detach().float().reshape(product.shape), alpha=beta)


@kernel
def generic_gemm(
    A: Any,
    transA: bool,
    B: Any,
    transB: bool,
    D: torch.Tensor | None,
    quantizer: Any,
    output_dtype: Any,
    bias: torch.Tensor | None,
    bias_type: Any,
    gelu: bool,
    gelu_in: torch.Tensor | None,
    grad: bool,
    workspace: torch.Tensor,
    workspace_size: int,
    accumulate: bool,
    use_split_accumulator: bool,
    comm_overlap: Any = None,
    comm_type: Any = None,
    extra_output: torch.Tensor | None = None,
    bulk_overlap: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
) -> list[Any]:
    """Return [D, bias gradient or None, input of the GELU or None, None].

    D = op(B) @ op(A): "TN" makes (..., out) of a weight (out, in) and an input (..., in), "NN" and "NT"
    the gradients of input and weight. Epilogues: bias, GELU and its input; in backward (``grad``) the
    bias gradient and the GELU's derivative at ``gelu_in``. Accumulates into ``D`` on request.
    """
    refuse_unless(
        comm_overlap is None and extra_output is None and not bulk_overlap,
        "generic_gemm",
        "communication overlap",
    )
    refuse_unless(D is None or quantizer is None, "generic_gemm", "FP8 output into a given tensor")
    a, b = _operand(A, rowwise=transA), _operand(B, rowwise=not transB)
    out = _product(a, transA, b, transB)
    if alpha != 1.0:
        out.mul_(alpha)
    dtype = _output_dtype(output_dtype, D, A)
    bias_gradient = gelu_input = None
    if bias is not None and grad:
        bias_gradient = b.matrix.sum(0).to(dtype)
    elif bias is not None and bias.numel():  # a module of 2.1 without bias gives an empty one
        out.add_(bias.detach().float())
    if not transB and len(b.outer) != 1:
        out = out.reshape(*b.outer, out.shape[-1])
    if gelu and not grad:
        low_precision = a.scale_inv is not None or b.scale_inv is not None
        gelu_input = out.to(torch_dtype(bias_type) if low_precision else dtype)
        out = gelu_values(out)
    elif gelu and gelu_in is not None:
        out = gelu_backward_values(gelu_in.detach().float().reshape(out.shape), out)
    if D is None:
        if a.scale_inv is None and b.scale_inv is None:
            out = out.to(dtype)  # FP8 output is fused into FP8 products only
        return [output_as(out, quantizer, dtype), bias_gradient, gelu_input, None]
    if accumulate:
        out = _accumulated(out, D, 1.0 if beta is None else beta)
    overwrite(D, out)
    return [D, bias_gradient, gelu_input, None]


def _output_dtype(requested: Any, destination: torch.Tensor | None, a: Any) -> torch.dtype:
    if requested is not None:
        return torch_dtype(requested)
    found: torch.dtype = a.dtype if destination is None else destination.dtype
    return found


@kernel
def te_general_grouped_gemm(
    A: list[Any],
    transa: bool,
    B: list[Any],
    transb: bool,
    D: list[torch.Tensor] | None,
    D_type: Any,
    m_splits: list[int],
    bias: list[torch.Tensor],
    bias_type: Any,
    single_output: bool,
    pre_gelu_out: list[torch.Tensor],
    grad: bool,
    workspace: list[torch.Tensor],
    workspaceSize: int,
    accumulate: bool,
    use_split_accumulator: bool,
    math_sm_count: int,
) -> list[torch.Tensor]:
    """Compute D[i] = op(B[i]) @ op(A[i]) for each i, in place; return ``bias``, its gradients if ``grad``.

    With ``single_output`` the results lie one after the other in D[0]. An empty bias is none.
    """
    refuse_unless(D is not None, "te_general_grouped_gemm", "allocating its output")
    refuse_unless(not any(t.numel() for t in pre_gelu_out), "te_general_grouped_gemm", "a GELU epilogue")
    destinations = D or []
    start = 0
    for index, (factor_a, factor_b) in enumerate(zip(A, B, strict=True)):
        a, b = _operand(factor_a, rowwise=transa), _operand(factor_b, rowwise=not transb)
        out = _product(a, transa, b, transb)
        if bias[index].numel() and grad:
            overwrite(bias[index], b.matrix.sum(0))
        elif bias[index].numel():
            out.add_(bias[index].detach().float())
        if single_output:
            rows = destinations[0].detach().reshape(-1, out.shape[-1])
            destination = rows[start : start + out.shape[0]]
            start += out.shape[0]
        else:
            destination = destinations[index]
        overwrite(destination, _accumulated(out, destination, 1.0) if accumulate else out)
    return bias
