"""Watches a model while it runs: region calls, and what each FP8 module pushed and popped.

It reads through forward hooks, which are public torch API, and the probe; it patches nothing. A push
or a pop is seen by looking at the module's queue before and after its forward, so the very object is
known: the pairing oracle needs identity, not equal values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from harness import case as c
from harness.errors import HarnessFault
from harness.trace import Call, Event, Phase, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch.utils.hooks import RemovableHandle

    from harness.build import Model, RegionModule
    from harness.probe import Probe


class Recorder:
    """Writes calls and events of one run into its trace."""

    def __init__(self, model: Model, probe: Probe, trace: Trace) -> None:
        self.iteration = 0
        self.phase: Phase = 1
        self._trace = trace
        self._probe = probe
        # By id, without a reference: a snapshot kept alive here would look like a leak of TE's.
        self._numbers: dict[int, int] = {}
        self._next = 0
        self._hooks: list[RemovableHandle] = []
        self._watched = probe.fp8_modules(model.root)
        self._meant = dict(_meant_for_delayed_scaling(model, probe))
        met: set[int] = set()
        # The inner regions first: a module belongs to the innermost one around it.
        for region in reversed(model.regions):
            for path, module in probe.fp8_modules(region.body):
                if id(module) not in met:
                    met.add(id(module))
                    name = f"region {region.number}" + (f": {path}" if path else "")
                    self._watch(name, module, region.number)

    def _watch(self, name: str, module: torch.nn.Module, region: int) -> None:
        before: list[list[object]] = []
        enter, leave = partial(self._before, before), partial(self._after, before, name, region)
        self._hooks.append(module.register_forward_pre_hook(_faults_told(enter)))
        self._hooks.append(module.register_forward_hook(_faults_told(leave), always_call=True))

    def _before(self, before: list[list[object]], module: torch.nn.Module, _args: Any) -> None:
        before.append(list(self._probe.queue(module) or ()))

    def _after(
        self,
        before: list[list[object]],
        name: str,
        region: int,
        module: torch.nn.Module,
        _args: Any,
        _output: Any,
    ) -> None:
        earlier, later = before.pop(), list(self._probe.queue(module) or ())
        kept_from, kept_to = {id(snapshot) for snapshot in earlier}, {id(snapshot) for snapshot in later}
        popped = [self._numbers.pop(id(s), -1) for s in earlier if id(s) not in kept_to]
        pushed = [self._new_number(s) for s in later if id(s) not in kept_from]
        delayed = self._probe.is_delayed(module)
        self._trace.events.append(
            Event(
                region,
                self.iteration,
                self.phase,
                module=name,
                delayed=delayed,
                pushed=tuple(pushed),
                popped=tuple(popped),
                meant=self._meant.get(id(module)),
            )
        )

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
        self._trace.events.append(Event(region.number, self.iteration, self.phase))

    def enters(self, region: RegionModule, context: str) -> None:
        """Note that one of the contexts that a region's ``context_fn`` returned is being entered."""
        self._trace.events.append(Event(region.number, self.iteration, self.phase, context=context))

    def queues(self) -> dict[str, int]:
        """Return the lengths of the queues that are not empty, of modules and of no module's."""
        lengths = {name: len(self._probe.queue(module) or ()) for name, module in self._watched}
        lengths["(no module)"] = self._probe.snapshots() - sum(lengths.values())
        return {name: length for name, length in lengths.items() if length}

    def close(self) -> None:
        """Take the hooks off the model, so that it can be freed without a garbage collection."""
        for hook in self._hooks:
            hook.remove()


def _meant_for_delayed_scaling(model: Model, probe: Probe) -> Iterator[tuple[int, bool]]:
    """Yield the id of each module, and whether by the case alone it is to run under delayed scaling.

    Those are modules with parameters of their own: the others, as attention, quantize nothing by themselves.
    """
    delayed = isinstance(model.case.recipe, c.DelayedScaling)
    in_fp8 = {id(module) for leaf in model.in_fp8 for _, module in probe.fp8_modules(leaf)}
    for _, module in probe.fp8_modules(model.root):
        if next(module.parameters(recurse=False), None) is not None:
            yield id(module), delayed and id(module) in in_fp8


def _faults_told(hook: Callable[..., None]) -> Callable[..., None]:
    """Make what a hook raises a fault of the harness: it runs in the middle of TE's own code."""

    def told(*args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            raise HarnessFault(f"the recorder failed: {type(error).__name__}: {error}") from error

    return told
