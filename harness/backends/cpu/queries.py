"""What Transformer Engine asks its extension about the machine, and the classes it only names."""

# Names are the extension's own.
# ruff: noqa: N802

from __future__ import annotations

from typing import Any

from harness.backends.cpu.enums import NVTE_Fused_Attn_Backend
from harness.backends.cpu.unwritten import Unwritten


def get_cudnn_version() -> int:
    """Return a cuDNN new enough for every release: 9.20.0."""
    return 92000


def get_cublasLt_version() -> int:
    """Return a cuBLAS new enough for FP8 on Hopper, and too old for what needs Blackwell: 12.9."""
    return 120900


def get_num_cublas_streams() -> int:
    """Return how many workspaces a grouped GEMM wants."""
    return _num_cublas_streams


_num_cublas_streams = 4
"""The same, as releases up to 2.4 ask for it."""


def get_fused_attn_backend(*_args: Any, **_kwargs: Any) -> Any:
    """Return that no fused attention kernel fits."""
    return NVTE_Fused_Attn_Backend.NVTE_No_Backend


class FP8TensorMeta:
    """Holds ``scale`` and ``amax_history``; TE sets them as attributes."""


def _never_made(name: str) -> type:
    """Return a class that TE names in annotations; making an instance names it in an error."""
    return type(name, (), {"__init__": lambda _self, *_args, **_kwargs: Unwritten(name)()})


CommOverlapHelper = _never_made("CommOverlapHelper")
CommOverlapCore = _never_made("CommOverlapCore")
CommOverlapBase = _never_made("CommOverlapBase")
CommOverlapP2PBase = _never_made("CommOverlapP2PBase")
CommOverlap = _never_made("CommOverlap")
CommOverlapP2P = _never_made("CommOverlapP2P")
