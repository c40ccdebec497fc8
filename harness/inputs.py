"""Inputs: the tensors that a case's schedule asks for."""

from __future__ import annotations

import torch

from harness import case as c
from harness.errors import HarnessFault
from harness.leaves import DTYPES

_BATCH = 2


class Inputs:
    """The tensors that a case's schedule needs, one per step, drawn once and shared by all its runs.

    They are drawn on the CPU, so that every backend sees the same numbers.
    """

    def __init__(self, case: c.Case, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(case.seed)
        shape = (case.rows // _BATCH, _BATCH, case.width)
        self._tensors: list[torch.Tensor | None] = []
        for step in case.schedule:
            if isinstance(step, c.Forward | c.Backward | c.Evaluate):
                drawn = torch.randn(shape, generator=generator) * step.magnitude
                self._tensors.append(drawn.to(device, DTYPES[case.dtype]))
            else:
                self._tensors.append(None)

    def __getitem__(self, step: int) -> torch.Tensor:
        """Return the tensor of a step, [rows / 2, 2, width] in the case's dtype."""
        tensor = self._tensors[step]
        if tensor is None:
            raise HarnessFault(f"step {step} of the schedule takes no tensor")
        return tensor
