"""The enumerations of ``transformer_engine_torch``.

Mirrors ``transformer_engine/common/util/pybind_helper.h`` and the headers under
``transformer_engine/common/include``. Transformer Engine's Python uses the values of ``DType``,
``FP8FwdTensors`` and ``FP8BwdTensors`` as numbers; of all others it needs the names only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch

from harness.backends.installed import te_version_tuple


def _enum(name: str, members: str | dict[str, int]) -> Any:
    """Return an enumeration of the members given with their values, or counted from 0."""
    if isinstance(members, str):
        members = {member: number for number, member in enumerate(members.split())}
    return IntEnum(name, list(members.items()))


DType = _enum(
    "DType",
    {
        "kByte": 0,
        "kInt32": 2,
        "kFloat32": 4,
        "kFloat16": 5,
        "kBFloat16": 6,
        "kFloat8E4M3": 7,
        "kFloat8E5M2": 8,
        "kFloat4E2M1": 10,
    },
)
TORCH_DTYPE: dict[int, torch.dtype] = {
    DType.kByte: torch.uint8,
    DType.kInt32: torch.int32,
    DType.kFloat32: torch.float32,
    DType.kFloat16: torch.float16,
    DType.kBFloat16: torch.bfloat16,
    DType.kFloat8E4M3: torch.float8_e4m3fn,
    DType.kFloat8E5M2: torch.float8_e5m2,
}


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return the torch type of a ``DType`` member of ours or of TE's own mirror of it."""
    return dtype if isinstance(dtype, torch.dtype) else TORCH_DTYPE[int(dtype)]


FP8FwdTensors = _enum(
    "FP8FwdTensors",
    "GEMM1_INPUT GEMM1_WEIGHT GEMM1_OUTPUT GEMM2_INPUT GEMM2_WEIGHT GEMM2_OUTPUT "
    "GEMM3_INPUT GEMM3_WEIGHT GEMM3_OUTPUT",
)
FP8BwdTensors = _enum(
    "FP8BwdTensors",
    "GRAD_OUTPUT1 GRAD_INPUT1 GRAD_OUTPUT2 GRAD_INPUT2 GRAD_OUTPUT3 GRAD_INPUT3",
)

NVTE_Bias_Type = _enum("NVTE_Bias_Type", "NVTE_NO_BIAS NVTE_PRE_SCALE_BIAS NVTE_POST_SCALE_BIAS NVTE_ALIBI")
NVTE_Mask_Type = _enum(
    "NVTE_Mask_Type",
    "NVTE_NO_MASK NVTE_PADDING_MASK NVTE_CAUSAL_MASK NVTE_PADDING_CAUSAL_MASK "
    "NVTE_CAUSAL_BOTTOM_RIGHT_MASK NVTE_PADDING_CAUSAL_BOTTOM_RIGHT_MASK",
)
NVTE_Softmax_Type = _enum(
    "NVTE_Softmax_Type", "NVTE_VANILLA_SOFTMAX NVTE_OFF_BY_ONE_SOFTMAX NVTE_LEARNABLE_SOFTMAX"
)
NVTE_QKV_Format = _enum(
    "NVTE_QKV_Format",
    "NVTE_BSHD NVTE_SBHD NVTE_THD NVTE_BSHD_2SBHD NVTE_SBHD_2BSHD NVTE_THD_2BSHD NVTE_THD_2SBHD "
    "NVTE_BHSD NVTE_QKV_Format_NOT_SET",
)
NVTE_QKV_Layout = _enum(
    "NVTE_QKV_Layout",
    "NVTE_SB3HD NVTE_SBH3D NVTE_SBHD_SB2HD NVTE_SBHD_SBH2D NVTE_SBHD_SBHD_SBHD NVTE_BS3HD NVTE_BSH3D "
    "NVTE_BSHD_BS2HD NVTE_BSHD_BSH2D NVTE_BSHD_BSHD_BSHD NVTE_T3HD NVTE_TH3D NVTE_THD_T2HD "
    "NVTE_THD_TH2D NVTE_THD_THD_THD NVTE_SBHD_BSHD_BSHD NVTE_BSHD_SBHD_SBHD NVTE_THD_BSHD_BSHD "
    "NVTE_THD_SBHD_SBHD NVTE_Paged_KV_BSHD_BSHD_BSHD NVTE_Paged_KV_BSHD_SBHD_SBHD "
    "NVTE_Paged_KV_SBHD_BSHD_BSHD NVTE_Paged_KV_SBHD_SBHD_SBHD NVTE_Paged_KV_THD_BSHD_BSHD "
    "NVTE_Paged_KV_THD_SBHD_SBHD NVTE_BHSD_BHSD_BHSD NVTE_QKV_Layout_NOT_SET",
)
NVTEScalingMode = _enum(
    "NVTEScalingMode",
    "NVTE_DELAYED_TENSOR_SCALING NVTE_MXFP8_1D_SCALING NVTE_BLOCK_SCALING_1D NVTE_BLOCK_SCALING_2D "
    "NVTE_NVFP4_1D_SCALING NVTE_INVALID_SCALING",
)
Float8BlockScaleTensorFormat = _enum("Float8BlockScaleTensorFormat", "GEMM_READY COMPACT INVALID")
CommOverlapType = _enum("CommOverlapType", "RS AG")
CommOverlapAlgo = _enum(
    "CommOverlapAlgo",
    "BULK_OVERLAP_AG BULK_OVERLAP_RS SPLIT_PIPELINED_AG_P2P SPLIT_PIPELINED_RS SPLIT_PIPELINED_RS_P2P "
    "ATOMIC_GEMM_RS ATOMIC_GEMM_AG_P2P ATOMIC_GEMM_RS_P2P EXTERNAL_BULK_OVERLAP_AG",
)
NVTERoutingMapFormat = _enum("NVTERoutingMapFormat", "BYTEMAP BITMAP_U8")
NVTEQBHistogramMode = _enum("NVTEQBHistogramMode", "TWO_KERNEL FUSED_ATOMIC")

# TE up to 2.15 reads the member that later releases removed; from 2.17 on TE asserts that it is gone.
_ATTENTION_BACKENDS = {"NVTE_No_Backend": -1, "NVTE_F16_arbitrary_seqlen": 1, "NVTE_FP8": 2}
if te_version_tuple() < (2, 16):
    _ATTENTION_BACKENDS["NVTE_F16_max512_seqlen"] = 0
NVTE_Fused_Attn_Backend = _enum("NVTE_Fused_Attn_Backend", _ATTENTION_BACKENDS)
