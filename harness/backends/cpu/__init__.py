"""Transformer Engine's own Python on kernels written with torch's CPU operations.

It emulates one Hopper GPU (compute capability 9.0): ``loading`` makes TE load ``extension`` in place of its
compiled module, ``patches`` makes torch answer as if there were a GPU, and the other modules are kernels.
"""

from __future__ import annotations

import gc
import os
from itertools import compress
from typing import TYPE_CHECKING, Any

import torch

from harness.backends.base import ENVIRONMENT, Backend
from harness.backends.cpu.loading import load_te
from harness.backends.cpu.patches import patch_torch
from harness.backends.cpu.triton_stub import stub_triton

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = torch.Tensor.__torch_dispatch__
"""Classes that have another are shells, such as TE's FP8 tensors: their data lies in tensors within."""


class CpuBackend(Backend):
    """The emulated kernels. Tensors say ``is_cuda`` and have the device "cpu"."""

    name = "cpu"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.device = torch.device("cpu")

    def memory_held(self) -> int:
        """Return the bytes in the storages of all tensors that the garbage collector tracks.

        Tensors frozen with ``gc.freeze()`` do not count. Nor do those that torch's C++ made for itself and
        never showed to Python; what Transformer Engine saves for backward is not among them.
        """
        # The type, not isinstance: that would run the __class__ property of proxies.
        plain = {kind for kind in _kinds(torch.Tensor) if kind.__torch_dispatch__ is _PLAIN}
        held: dict[int, int] = {}
        objects = gc.get_objects()
        # No loop in Python over all objects, of which few are tensors.
        for found in compress(objects, map(plain.__contains__, map(type, objects))):
            if found.is_cpu:
                storage = found.untyped_storage()
                held[storage.data_ptr()] = storage.nbytes()
        return sum(held.values())

    def seed(self, seed: int) -> None:
        """Seed the CPU's generator and the device's, on a state to which nothing else points."""
        # An error may have left a tracker's state current.
        default: Any = torch.cuda.default_generators[0]
        default.graphsafe_set_state(default.clone_state())
        super().seed(seed)


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and all that are derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from _kinds(derived)


def start(reason: str) -> CpuBackend:
    """Patch torch and import Transformer Engine on the emulated extension."""
    os.environ.update(ENVIRONMENT)
    # A GPU that is present must not be initialised by a call that the patches leave alone.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Sums split over threads depend on their number; and many workers share the cores.
    torch.set_num_threads(1)
    stub_triton()
    patch_torch()
    load_te()
    return CpuBackend(reason)
