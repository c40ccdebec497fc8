"""What the emulated extension promises beside its numbers."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

from harness.backends.cpu.unwritten import UnwrittenKernel
from harness.errors import HarnessFault
from tests.backends.golden_case import delayed_quantizer, extension
from tests.backends.test_modules import autocast

if TYPE_CHECKING:
    from harness.backends import Backend

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
    from transformer_engine.common.recipe import Float8BlockScaling

    module = te.Linear(128, 128)
    with pytest.raises(UnwrittenKernel), autocast(Float8BlockScaling()):
        module(torch.ones(128, 128))


def test_a_launched_triton_kernel_names_itself() -> None:
    from transformer_engine.common.triton.pad import zero_pad_kernel

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
        general_gemm(weight, gradient, out_dtype=torch.float32, layout="NN")


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
