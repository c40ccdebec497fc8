"""What a run leaves behind: tensors, FP8 state, events, queue lengths, flags, memory and the error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    import torch

Quantity: TypeAlias = Literal["output", "input gradient", "parameter gradient", "FP8 state"]
Phase: TypeAlias = Literal[1, 2]
"""1 while a forward or an evaluation runs, 2 while a backward does: there only a recompute calls modules."""


class TensorKey(NamedTuple):
    """The place of a tensor in a run; ``name`` is the parameter's or the FP8 state's, else empty."""

    quantity: Quantity
    iteration: int
    name: str = ""


class Call(msgspec.Struct, frozen=True):
    """One call of a region: ``grad_enabled`` and ``needs_grad`` (any tensor argument) are as at entry.

    ``reentrant`` is the region's own flag; ``has_contexts`` says that it passes a ``context_fn``.
    """

    region: int
    iteration: int
    grad_enabled: bool
    needs_grad: bool
    reentrant: bool
    has_contexts: bool = False

    @property
    def recomputes(self) -> bool:
        """Whether the corrected checkpoint must run the callable a second time, in the backward.

        It does not where gradients are off at entry, nor in a reentrant call none of whose inputs
        needs a gradient.
        """
        return self.grad_enabled and (self.needs_grad or not self.reentrant)


class Event(msgspec.Struct, frozen=True):
    """A region's callable was run, an FP8 module's forward inside a region was, or a context was entered.

    For a callable, ``module`` and ``context`` are empty; ``context`` says which of the two that
    ``context_fn`` returned, "forward" or "recompute".

    ``pushed`` and ``popped`` number the snapshots in the order in which they were pushed; -1 is one
    whose push was not seen.
    ``delayed`` says that the module ran under delayed scaling, so that a snapshot is due; ``meant`` whether
    by the case it was to, None where the case does not tell.
    """

    region: int
    iteration: int
    phase: Phase
    module: str = ""
    delayed: bool = False
    pushed: tuple[int, ...] = ()
    popped: tuple[int, ...] = ()
    context: str = ""
    meant: bool | None = None


class RunError(msgspec.Struct, frozen=True):
    """The exception that ended a run: in which step of the schedule, of which type, with what message."""

    step: int
    doing: str
    iteration: int
    type: str
    message: str


class Standstill(NamedTuple):
    """State of the process after a step that leaves no graph pending."""

    iteration: int
    queues: dict[str, int]
    """Length of each FP8 module's recompute queue, empty ones left out."""
    first_flags: int
    """Length of the list of first-module flags."""
    flags: tuple[tuple[str, str], ...]
    """TE's and torch's process-wide switches, by name."""


@dataclass
class Closeup:
    """What only a picture of a run needs; noted where ``Trace.closeup`` is given one."""

    modules: dict[str, str] = field(default_factory=dict)
    """Each watched module by the name that events give it, and the name of its class."""
    steps: list[int] = field(default_factory=list)
    """Of each event, the step of the schedule in which it happened."""
    iterations: dict[int, int] = field(default_factory=dict)
    """Which iteration each step worked on, for the steps that work on one."""
    restored: dict[int, bool] = field(default_factory=dict)
    """Of each event that popped: whether the live scale and amax history were the same before and after."""
    left: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The snapshots in each module's queue when the run ended, the next to be popped first."""
    left_elsewhere: dict[str, int] = field(default_factory=dict)
    """Lengths of other queues when the run ended, by the module's path in the model, empty ones left out."""
    first_flags: dict[int, int] = field(default_factory=dict)
    """Length of the list of first-module flags after each step."""
    pending: tuple[int, ...] = ()
    """The iterations whose backward had not come when the run ended."""


@dataclass
class Trace:
    """All that a run leaves; what the oracles compare."""

    tensors: dict[TensorKey, torch.Tensor | None] = field(default_factory=dict)
    state_layout: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """Per iteration, what the packed FP8 state tensor holds: names and numbers of elements, in order."""
    region_paths: list[str] = field(default_factory=list)
    """Where each region sits in the model: what begins with its path belongs to it."""
    calls: list[Call] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    abandoned: set[int] = field(default_factory=set)
    """The iterations whose backward never comes."""
    failed: list[int] = field(default_factory=list)
    """The steps in which a region raised as the case says."""
    mixed: set[int] = field(default_factory=set)
    """The iterations whose recomputes are not told apart: those steps', and where backward and forward are
    not one for one."""
    standstills: list[Standstill] = field(default_factory=list)
    rng_states: tuple[torch.Tensor, ...] = ()
    memory: dict[int, int] = field(default_factory=dict)
    """Bytes in live tensors after each iteration, from that of the first backward on."""
    error: RunError | None = None
    closeup: Closeup | None = None

    def region_of(self, name: str) -> int | None:
        """Return the number of the innermost region that a parameter or an FP8 state belongs to."""
        inside = [n for n, path in enumerate(self.region_paths) if not path or name.startswith(path + ".")]
        return inside[-1] if inside else None
