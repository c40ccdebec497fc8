"""Random number generators as CUDA has them: they point to their state, and may share it.

On CUDA a generator only refers to its state (``CUDAGeneratorState`` in ATen). ``graphsafe_get_state()``
returns another generator on the same state, not a copy, and ``graphsafe_set_state()`` makes a generator point
to the state of another. Where torch has these, Transformer Engine keeps such references for ``te.checkpoint``
to go back to, and ``CudaRNGStatesTracker.fork()`` swaps them. What a reference leads to goes on changing, so
that going back rewinds nothing: with a tracker given, a recompute draws other dropout masks than its forward,
in and outside of forks (measured on an H200 with 2.20.2).

Kernels on the CPU draw from ``torch.default_generator``, which cannot be made to point elsewhere. So it holds
the numbers of whichever state is current; they are carried out and in when another becomes current.

Two things differ from CUDA. The numbers are another algorithm's. And a :class:`SharingGenerator` passed to a
function as ``generator=`` draws numbers of its own; Transformer Engine passes none.
"""

from __future__ import annotations

from typing import Any

import torch


class SharedState:
    """What several generators may point to. ``source`` is the generator that holds its numbers."""

    def __init__(self, source: torch.Generator) -> None:
        self.source = source


class SharingGenerator(torch.Generator):
    """Points to a state. A ``torch.Generator``, because that is how TE tells it from a state's bytes."""

    def __new__(cls, _shared: SharedState) -> SharingGenerator:
        """Make the generator; torch's own constructor would take the argument for a device."""
        return super().__new__(cls)

    def __init__(self, shared: SharedState) -> None:
        self.shared = shared

    def get_state(self) -> torch.Tensor:
        """Return a copy of the state, as bytes."""
        return self.shared.source.get_state()

    def set_state(self, new_state: torch.Tensor) -> SharingGenerator:
        """Overwrite the state, for all that point to it."""
        self.shared.source.set_state(new_state)
        return self

    def manual_seed(self, seed: int) -> SharingGenerator:
        """Seed the state, for all that point to it."""
        self.shared.source.manual_seed(seed)
        return self

    def seed(self) -> int:
        """Seed the state with a random number and return that."""
        return self.shared.source.seed()

    def initial_seed(self) -> int:
        """Return what the state was seeded with."""
        return self.shared.source.initial_seed()

    def graphsafe_get_state(self) -> SharingGenerator:
        """Return another generator on the same state."""
        return SharingGenerator(self.shared)

    def __deepcopy__(self, _memo: dict[int, Any]) -> SharingGenerator:
        """Return a generator on a copy of the state; torch's own copy would be one of the CPU."""
        return self.clone_state()

    def clone_state(self) -> SharingGenerator:
        """Return a generator on a copy of the state."""
        return SharingGenerator(SharedState(self.shared.source.clone_state()))


class DeviceGenerator(SharingGenerator):
    """The generator that the device's kernels draw from. It points to the current state."""

    def graphsafe_set_state(self, state: Any) -> DeviceGenerator:
        """Make the state that another generator points to the current one."""
        self.shared.source = torch.default_generator.clone_state()
        self.shared = state.shared
        torch.default_generator.set_state(self.shared.source.get_state())
        self.shared.source = torch.default_generator
        return self


def device_generator() -> DeviceGenerator:
    """Return the device's generator; what ``torch.default_generator`` holds is its first state."""
    return DeviceGenerator(SharedState(torch.default_generator))
