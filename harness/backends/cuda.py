"""Transformer Engine as it is installed, on a GPU that runs FP8."""

from __future__ import annotations

import importlib
import os
import warnings

import torch

from harness.backends.base import ENVIRONMENT, Backend
from harness.errors import DeviceLost


class CudaBackend(Backend):
    """The real kernels, on GPU 0 of those that this process sees."""

    name = "cuda"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.device = torch.device("cuda:0")

    def memory_held(self) -> int:
        """Return the bytes of tensors on the GPU.

        As ``torch.cuda.memory_allocated``, which flattens and sorts all statistics for this one: 0.25 ms,
        six times a case of three iterations (H200, torch 2.11).
        """
        allocated: int = torch.cuda.memory_stats_as_nested_dict(self.device)["allocated_bytes"]["all"][
            "current"
        ]
        return allocated

    def check_device(self) -> None:
        """Wait for the GPU; raises DeviceLost after an error that its context keeps.

        Such an error (a failed assertion in a kernel, an illegal access to memory) is told by some later
        call, and by every one from then on: measured on an H200 with torch 2.11. One without consequences,
        as when memory runs out, is not told again here.
        """
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            raise DeviceLost(str(error).split("\n", 1)[0]) from error

    def footprint(self, tensor: torch.Tensor) -> int:
        """Return the size of the tensor's block: PyTorch's allocator rounds up to 512 bytes."""
        return -(-super().footprint(tensor) // 512) * 512


def start(reason: str) -> CudaBackend:
    """Import Transformer Engine on its compiled extension."""
    os.environ.update(ENVIRONMENT)
    # Without a workspace of fixed size, cuBLAS may sum in another order when several streams are in use.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    # With it TE would skip its compiled core; a parent process that builds TE may have left it behind.
    os.environ.pop("NVTE_PROJECT_BUILDING", None)
    # Deprecations in what TE imports are not ours to fix, and would be errors under pytest.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("transformer_engine.pytorch")
    return CudaBackend(reason)
