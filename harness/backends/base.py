"""What a backend is: the device that Transformer Engine runs on in this process."""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from harness.backends.installed import te_version

ENVIRONMENT = {
    # Kernels that sum in an arbitrary order differ from run to run, and bitwise comparison would fail.
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    # One attention on both backends, the unfused one: no emulation has the fused kernels, and the others
    # are chosen by shape and by what happens to be installed.
    "NVTE_FLASH_ATTN": "0",
    "NVTE_FUSED_ATTN": "0",
    # torch.compile fuses elementwise functions into other arithmetic, and compiles for seconds.
    "NVTE_TORCH_COMPILE": "0",
    # The checkpoint's reentrant flag switches LayerNormMLP's fused bias and GELU off
    # (module/layernorm_mlp.py), which without FP8 changes bits by about 4e-7; the fused bias, dropout and
    # add of TransformerLayer
    # (transformer.py) draws random numbers with gradients on and none with them off, even where nothing is
    # dropped. Both measured on an H200 with 2.20.2. Neither concerns FP8: unfused, all runs agree bit by bit.
    "NVTE_BIAS_GELU_NVFUSION": "0",
    "NVTE_BIAS_DROPOUT_FUSION": "0",
    # A case that loads a state has saved it itself. Read since 2.20.
    "NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE": "1",
    # TE warns about each other framework that is installed and whose extension it cannot load.
    "NVTE_FRAMEWORK": "pytorch",
}
"""Set before Transformer Engine is imported, on every backend, over what the user has set: a case must
give the same result in every shell."""


class Backend(ABC):
    """Where Transformer Engine runs, and the few things that depend on it.

    ``name``: "cpu" or "cuda". ``device``: where tensors of a case live. ``reason``: why this backend was
    chosen, in words.
    """

    name: ClassVar[str]
    device: torch.device

    def __init__(self, reason: str) -> None:
        self.reason = reason

    @abstractmethod
    def memory_held(self) -> int:
        """Return the bytes that live tensors hold."""

    def footprint(self, tensor: torch.Tensor) -> int:
        """Return how much a tensor with memory of its own adds to ``memory_held``."""
        return tensor.untyped_storage().nbytes()

    def rng_states(self) -> tuple[torch.Tensor, ...]:
        """Return the state of the CPU's generator and of the device's, as bytes."""
        return torch.get_rng_state(), torch.cuda.get_rng_state()

    def seed(self, seed: int) -> None:
        """Seed every generator that a case may draw from."""
        torch.manual_seed(seed)

    def check_device(self) -> None:  # noqa: B027  (a device without a context has none to lose)
        """Wait for the device; raises DeviceLost where it answers nothing right any more."""

    def describe(self) -> dict[str, str]:
        """Return what a report says about where it was made."""
        major, minor = torch.cuda.get_device_capability()
        return {
            "backend": self.name,
            "device": torch.cuda.get_device_name(),
            "compute_capability": f"{major}.{minor}",
            "transformer_engine": te_version(),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        }
