"""What the emulated extension promises beside its numbers."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

from harness.backends.cpu.unwritten import UnwrittenKernel
from harness.errors import HarnessFault
from tests.backends.golden_case import current_quantizer, delayed_quantizer, extension
from tests.backends.golden_products import by_release
from tests.backends.test_modules import autocast

if TYPE_CHECKING:
    from harness.backends.base import Backend

pytestmark = pytest.mark.usefixtures("emulation")


def test_an_unwritten_kernel_is_importable_and_names_itself_when_called() -> None:
    from transformer_engine_torch import fused_attn_fwd

    with pytest.raises(UnwrittenKernel, match="the kernel fused_attn_fwd is not emulated"):
        fused_attn_fwd(1, 2, three=3)


def test_an_unwritten_kernel_is_a_fault_of_the_harness() -> None:
    assert issubclass(UnwrittenKernel, HarnessFault)


def test_communication_overlap_is_refused() -> None:
    tex = extension()
    matrix = torch.ones(16, 16)
    arguments = (matrix, True, matrix, False, None, None, None, None, None, False, None, False, matrix, 0)
    with pytest.raises(UnwrittenKernel, match="generic_gemm is emulated without communication overlap"):
        tex.generic_gemm(*arguments, False, False, comm_overlap=object())
    with pytest.raises(UnwrittenKernel, match="CommOverlap"):
        tex.CommOverlap([1], torch.float32)


def test_an_unknown_quantizer_is_refused() -> None:
    from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer

    with pytest.raises(UnwrittenKernel, match="MXFP8Quantizer is not emulated"):
        extension().quantize(torch.ones(32, 32), MXFP8Quantizer(extension().DType.kFloat8E4M3))


def test_a_recipe_that_needs_unwritten_kernels_is_refused() -> None:
    import transformer_engine.pytorch as te

    from harness.api import recipe_class

    block_scaling = recipe_class("Float8BlockScaling")()
    module = te.Linear(128, 128)
    with pytest.raises(UnwrittenKernel), autocast(block_scaling):
        module(torch.ones(128, 128))


def test_a_launched_triton_kernel_names_itself() -> None:
    # It came with 2.9.
    zero_pad_kernel = pytest.importorskip("transformer_engine.common.triton.pad").zero_pad_kernel

    with pytest.raises(UnwrittenKernel, match="zero_pad_kernel"):
        zero_pad_kernel[(1,)](None)


def test_kernels_write_behind_autograds_back() -> None:
    weight = torch.ones(4, requires_grad=True)
    saved = torch.ones(4)
    loss = (weight * saved).sum()
    quantizer = delayed_quantizer("e4m3")
    quantizer.amax = saved
    extension().compute_amax(torch.full((4,), 5.0), saved[:1])
    torch.autograd.backward(loss)
    assert weight.grad is not None
    assert weight.grad.tolist() == [5.0, 1.0, 1.0, 1.0]


def test_kernels_record_nothing_for_autograd() -> None:
    x = torch.ones(16, 16, requires_grad=True)
    result = extension().quantize(x, delayed_quantizer("e4m3"))
    assert not result.requires_grad


def test_column_wise_data_is_the_transpose() -> None:
    result = extension().quantize(torch.arange(12.0).reshape(3, 4), delayed_quantizer("e4m3"))
    assert torch.equal(result._transpose, result._data.t())


def test_fp8_products_want_the_operand_in_the_layout_of_hopper() -> None:
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    weight = extension().quantize(torch.ones(16, 16), delayed_quantizer("e4m3", usage="row"))
    gradient = extension().quantize(torch.ones(16, 16), delayed_quantizer("e4m3", usage="row"))
    with pytest.raises(RuntimeError, match="column-wise data"):
        general_gemm(weight, gradient, out_dtype=torch.float32, layout="NN", **by_release(general_gemm))


@pytest.mark.parametrize("kind", ["delayed", "current"])
def test_a_norm_fills_a_given_fp8_tensor_as_it_makes_one(kind: str) -> None:
    tex = extension()
    x, weight = torch.randn(16, 32).to(torch.bfloat16), torch.rand(32).to(torch.bfloat16)
    quantizers = [
        delayed_quantizer("e4m3", scale=3.0) if kind == "delayed" else current_quantizer("e4m3")
        for _ in range(2)
    ]
    given = tex.quantize(torch.zeros(16, 32), quantizers[0])
    filled, made = (
        tex.rmsnorm_fwd(x, weight, 1e-5, out, quantizer, tex.DType.kBFloat16, 0, False)[0]
        for out, quantizer in zip((given, None), quantizers, strict=True)
    )
    assert filled is given
    for buffer in ("_data", "_transpose", "_scale_inv"):
        assert torch.equal(getattr(filled, buffer), getattr(made, buffer)), buffer
    if kind == "delayed":
        assert torch.equal(quantizers[0].amax, quantizers[1].amax)


def test_many_tensors_are_quantized_as_each_alone() -> None:
    tex = extension()
    tensors = [torch.randn(16, 32).to(torch.bfloat16), torch.randn(32, 32).to(torch.bfloat16)]
    together = tex.fused_multi_quantize(
        tensors, None, [delayed_quantizer("e4m3", scale=2.0) for _ in tensors], tex.DType.kBFloat16
    )
    for tensor, quantized in zip(tensors, together, strict=True):
        alone = tex.quantize(tensor, delayed_quantizer("e4m3", scale=2.0))
        assert torch.equal(quantized._data, alone._data)
        assert torch.equal(quantized._transpose, alone._transpose)
        assert quantized.dtype == torch.bfloat16
    with pytest.raises(UnwrittenKernel, match="output into given tensors"):
        tex.fused_multi_quantize(tensors, together, [], tex.DType.kBFloat16)


def test_an_empty_bias_is_none() -> None:
    tex = extension()
    matrix = torch.randn(16, 16)
    empty, none = (
        tex.generic_gemm(
            matrix, True, matrix, False, None, None, None, bias, tex.DType.kBFloat16,
            False, None, False, torch.empty(0), 0, False, False,
        )[0]
        for bias in (torch.empty(0), None)
    )  # fmt: skip
    assert torch.equal(empty, none)


def test_memory_held_counts_each_storage_once(backend: Backend) -> None:
    gc.collect()
    before = backend.memory_held()
    tensor = torch.empty(1024, dtype=torch.float32)
    views = [tensor, tensor.view(32, 32), tensor[:10]]
    assert backend.memory_held() - before == 4096
    del tensor, views
    assert backend.memory_held() == before


def test_memory_held_counts_the_buffers_of_fp8_tensors(backend: Backend) -> None:
    quantizer = delayed_quantizer("e4m3")
    gc.collect()
    before = backend.memory_held()
    result = extension().quantize(torch.ones(64, 64), quantizer)
    assert backend.memory_held() - before == 2 * 64 * 64 + 4
    del result
