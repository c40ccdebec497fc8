"""The module that Transformer Engine loads as ``transformer_engine_torch``.

TE's own loader executes this file under that name; import it under no other. It only gathers the kernels,
which live in the modules beside it. What is not here is importable all the same, and an error when used.
"""

from __future__ import annotations

from harness.backends.cpu.activations import activation_kernels
from harness.backends.cpu.enums import (
    CommOverlapAlgo,
    CommOverlapType,
    DType,
    Float8BlockScaleTensorFormat,
    FP8BwdTensors,
    FP8FwdTensors,
    NVTE_Bias_Type,
    NVTE_Fused_Attn_Backend,
    NVTE_Mask_Type,
    NVTE_QKV_Format,
    NVTE_QKV_Layout,
    NVTE_Softmax_Type,
    NVTEQBHistogramMode,
    NVTERoutingMapFormat,
    NVTEScalingMode,
)
from harness.backends.cpu.gemm import generic_gemm, te_general_grouped_gemm
from harness.backends.cpu.norms import layernorm_bwd, layernorm_fwd, rmsnorm_bwd, rmsnorm_bwd_add, rmsnorm_fwd
from harness.backends.cpu.quantize import (
    bgrad_quantize,
    compute_amax,
    create_empty_quantized_tensor,
    dequantize,
    fp8_transpose,
    fused_multi_quantize,
    multi_tensor_quantize,
    quantize,
    split_quantize,
)
from harness.backends.cpu.queries import (
    CommOverlap,
    CommOverlapBase,
    CommOverlapCore,
    CommOverlapHelper,
    CommOverlapP2P,
    CommOverlapP2PBase,
    FP8TensorMeta,
    _num_cublas_streams,
    get_cublasLt_version,
    get_cudnn_version,
    get_fused_attn_backend,
    get_num_cublas_streams,
)
from harness.backends.cpu.scaling import fused_amax_and_scale_update_after_reduction
from harness.backends.cpu.softmax import (
    scaled_aligned_causal_masked_softmax_backward,
    scaled_aligned_causal_masked_softmax_forward,
    scaled_masked_softmax_backward,
    scaled_masked_softmax_forward,
    scaled_softmax_backward,
    scaled_softmax_forward,
    scaled_upper_triang_masked_softmax_backward,
    scaled_upper_triang_masked_softmax_forward,
)
from harness.backends.cpu.unwritten import Unwritten

_ACTIVATIONS = activation_kernels()
globals().update(_ACTIVATIONS)

__all__ = [
    "CommOverlap",
    "CommOverlapAlgo",
    "CommOverlapBase",
    "CommOverlapCore",
    "CommOverlapHelper",
    "CommOverlapP2P",
    "CommOverlapP2PBase",
    "CommOverlapType",
    "DType",
    "FP8BwdTensors",
    "FP8FwdTensors",
    "FP8TensorMeta",
    "Float8BlockScaleTensorFormat",
    "NVTEQBHistogramMode",
    "NVTERoutingMapFormat",
    "NVTEScalingMode",
    "NVTE_Bias_Type",
    "NVTE_Fused_Attn_Backend",
    "NVTE_Mask_Type",
    "NVTE_QKV_Format",
    "NVTE_QKV_Layout",
    "NVTE_Softmax_Type",
    "_num_cublas_streams",
    "bgrad_quantize",
    "compute_amax",
    "create_empty_quantized_tensor",
    "dequantize",
    "fp8_transpose",
    "fused_amax_and_scale_update_after_reduction",
    "fused_multi_quantize",
    "generic_gemm",
    "get_cublasLt_version",
    "get_cudnn_version",
    "get_fused_attn_backend",
    "get_num_cublas_streams",
    "layernorm_bwd",
    "layernorm_fwd",
    "multi_tensor_quantize",
    "quantize",
    "rmsnorm_bwd",
    "rmsnorm_bwd_add",
    "rmsnorm_fwd",
    "scaled_aligned_causal_masked_softmax_backward",
    "scaled_aligned_causal_masked_softmax_forward",
    "scaled_masked_softmax_backward",
    "scaled_masked_softmax_forward",
    "scaled_softmax_backward",
    "scaled_softmax_forward",
    "scaled_upper_triang_masked_softmax_backward",
    "scaled_upper_triang_masked_softmax_forward",
    "split_quantize",
    "te_general_grouped_gemm",
    *_ACTIVATIONS,
]


def __getattr__(name: str) -> Unwritten:
    if name.startswith("__"):
        raise AttributeError(name)
    return Unwritten(name)
