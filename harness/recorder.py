"""Watches a model while it runs: region calls, and what each FP8 module pushed and popped.

It reads through forward hooks, which are public torch API, and the probe; it patches nothing. A push
or a pop is seen by looking at the module's queue before and after its forward, so the very object is
known: the pairing oracle needs identity, not equal values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.comparison import equal_bits
from harness.errors import HarnessFault
from harness.trace import Call, Event, Phase, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch.utils.hooks import RemovableHandle

    from harness.build import Model
    from harness.probe import Probe
    from harness.region import RegionModule


class _Before(NamedTuple):
    """What was so when a module was entered."""

    queue: list[object]
    """The snapshots in its queue."""
    scales: list[torch.Tensor]
    """Its live scales, for a close-up."""
    region: int | None
    """The region in which it runs."""


class Recorder:
    """Writes calls and events of one run into its trace, and a close-up where that holds one.

    ``step`` and ``phase`` are the schedule's; whoever walks it sets them, and ``iteration``. ``snapshots``
    false leaves the modules themselves alone, as in a direct run, whose modules are never asked about.
    """

    def __init__(self, model: Model, probe: Probe, trace: Trace, *, snapshots: bool) -> None:
        self.step = 0
        self.phase: Phase = 1
        self._iteration = 0
        self._trace = trace
        self._probe = probe
        self._snapshots = snapshots
        # By id, without a reference: a snapshot kept alive here would look like a leak of TE's.
        self._numbers: dict[int, int] = {}
        self._next = 0
        self._running: list[int] = []
        self._hooks: list[RemovableHandle] = []
        self.watch(model)

    def watch(self, model: Model) -> None:
        """Watch the modules of a model; those of a run may be replaced by copies."""
        self._watched = self._probe.fp8_modules(model.root)
        self._named: dict[str, torch.nn.Module] = {}
        if self._snapshots:
            self._watch_regions(model)

    def _watch_regions(self, model: Model) -> None:
        meant = dict(_meant_for_delayed_scaling(model, self._probe))
        names: dict[int, dict[int, str]] = {}
        modules = {id(module): module for _, module in self._watched}
        # The inner regions first: a module is named after the innermost one around it.
        for region in reversed(model.regions):
            for path, module in self._probe.fp8_modules(region.body):
                name = f"region {region.number}" + (f": {path}" if path else "")
                names.setdefault(id(module), {})[region.number] = name
        for key, by_region in names.items():
            self._named[next(iter(by_region.values()))] = modules[key]
            self._watch(modules[key], by_region, meant.get(key))
        if self._trace.closeup is not None:
            kinds = {name: type(module).__name__ for name, module in self._named.items()}
            self._trace.closeup.modules = kinds

    @property
    def iteration(self) -> int:
        """The iteration that what happens belongs to."""
        return self._iteration

    @iteration.setter
    def iteration(self, number: int) -> None:
        self._iteration = number
        if self._trace.closeup is not None:
            self._trace.closeup.iterations[self.step] = number

    def _watch(self, module: torch.nn.Module, names: dict[int, str], meant: bool | None) -> None:
        before: list[_Before] = []
        enter, leave = partial(self._before, before), partial(self._after, before, names, meant)
        self._hooks.append(module.register_forward_pre_hook(_faults_told(enter)))
        self._hooks.append(module.register_forward_hook(_faults_told(leave), always_call=True))

    def _before(self, before: list[_Before], module: torch.nn.Module, _args: Any) -> None:
        scales = [] if self._trace.closeup is None else self._probe.live_scales(module)
        # The region now: where the module is its very body, the region's end is told before the module's.
        region = self._running[-1] if self._running else None
        before.append(_Before(list(self._probe.queue(module) or ()), scales, region))

    def _after(
        self,
        before: list[_Before],
        names: dict[int, str],
        meant: bool | None,
        module: torch.nn.Module,
        _args: Any,
        output: Any,
    ) -> None:
        (earlier, scales, region), later = before.pop(), list(self._probe.queue(module) or ())
        popped: list[int] = []
        pushed: list[int] = []
        if earlier or later:
            kept_from, kept_to = {id(snapshot) for snapshot in earlier}, {id(snapshot) for snapshot in later}
            popped = [self._numbers.pop(id(s), -1) for s in earlier if id(s) not in kept_to]
            pushed = [self._new_number(s) for s in later if id(s) not in kept_from]
        if region is None:
            # Used outside every region too.
            return
        # What raised gives no output, and had no chance to put anything back.
        if popped and output is not None and self._trace.closeup is not None:
            self._trace.closeup.restored[len(self._trace.events)] = self._are_live(module, scales)
        event = Event(
            region,
            self.iteration,
            self.phase,
            module=names.get(region, f"region {region}"),
            delayed=self._probe.is_delayed(module),
            pushed=tuple(pushed),
            popped=tuple(popped),
            meant=meant,
        )
        self._note(event)

    def _are_live(self, module: torch.nn.Module, scales: list[torch.Tensor]) -> bool:
        """Whether the module's scales are these, bit by bit.

        A recompute always changes them for a while: each forward notes its amaxes in the history.
        """
        now = self._probe.live_scales(module)
        return len(now) == len(scales) and all(map(equal_bits, now, scales))

    def _note(self, event: Event) -> None:
        self._trace.events.append(event)
        if self._trace.closeup is not None:
            self._trace.closeup.steps.append(self.step)

    def _new_number(self, snapshot: object) -> int:
        self._numbers[id(snapshot)] = self._next
        self._next += 1
        return self._next - 1

    def called(self, region: RegionModule, grad_enabled: bool, needs_grad: bool) -> None:
        """Note that the graph reached a region."""
        node = region.node
        has_contexts = node.contexts is not None
        self._trace.calls.append(
            Call(region.number, self.iteration, grad_enabled, needs_grad, node.use_reentrant, has_contexts)
        )

    def runs(self, region: RegionModule) -> None:
        """Note that a region's callable is being run."""
        self._running.append(region.number)
        self._note(Event(region.number, self.iteration, self.phase))

    def ends(self) -> None:
        """Note that the callable of the region that was entered last is done."""
        self._running.pop()

    def enters(self, region: RegionModule, context: str) -> None:
        """Note that one of the contexts that a region's ``context_fn`` returned is being entered."""
        self._note(Event(region.number, self.iteration, self.phase, context=context))

    def queues(self) -> dict[str, int]:
        """Return the lengths of the queues that are not empty, of modules and of no module's."""
        lengths = {name: len(self._probe.queue(module) or ()) for name, module in self._watched}
        lengths["(no module)"] = self._probe.snapshots() - sum(lengths.values())
        return {name: length for name, length in lengths.items() if length}

    def step_ended(self) -> None:
        """Note what a step left that no queue of a module tells."""
        if self._trace.closeup is not None:
            self._trace.closeup.first_flags[self.step] = len(self._probe.first_flags())

    def close(self) -> None:
        """Note what is left at the end of a run, and stop watching, so that the model can be freed."""
        if self._trace.closeup is not None:
            self._trace.closeup.left = {name: self._left(module) for name, module in self._named.items()}
            inside = {id(module) for module in self._named.values()}
            paths = {name for name, module in self._watched if id(module) in inside}
            lengths = self.queues().items()
            self._trace.closeup.left_elsewhere = {name: n for name, n in lengths if name not in paths}
        self.unwatch()

    def unwatch(self) -> None:
        """Take the hooks off the model, so that it can be copied, or freed without a garbage collection."""
        while self._hooks:
            self._hooks.pop().remove()

    def _left(self, module: torch.nn.Module) -> tuple[int, ...]:
        return tuple(self._numbers.get(id(snapshot), -1) for snapshot in self._probe.queue(module) or ())


def _meant_for_delayed_scaling(model: Model, probe: Probe) -> Iterator[tuple[int, bool | None]]:
    """Yield the id of each module, and whether by the case alone it is to run under delayed scaling.

    Those are modules with parameters of their own: the others, as attention, quantize nothing by themselves.
    """
    leaves = zip(model.leaves, model.meant_delayed, strict=True)
    for leaf, meant in (*leaves, *((twin.module, twin.meant) for twin in model.twins)):
        for _, module in probe.fp8_modules(leaf):
            if next(module.parameters(recurse=False), None) is not None:
                yield id(module), meant


def _faults_told(hook: Callable[..., None]) -> Callable[..., None]:
    """Make what a hook raises a fault of the harness: it runs in the middle of TE's own code."""

    def told(*args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            raise HarnessFault(f"the recorder failed: {type(error).__name__}: {error}") from error

    return told
