"""Calls the regions of a run: directly, or under a checkpointer; some raise, as the case says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.utils.checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

from harness import case as c

if TYPE_CHECKING:
    from harness.build import Model
    from harness.recorder import Recorder
    from harness.region import RegionModule

Checkpointer: TypeAlias = Callable[..., Any]
"""A function with the signature of ``te.checkpoint``."""


class PlannedError(RuntimeError):
    """What a region raises where the case says so."""


class _Calling(torch.nn.Module):
    """A module that calls a function, which calls the module's own body."""

    def __init__(self, function: Callable[..., Any], body: torch.nn.Module) -> None:
        super().__init__()
        self.function = function
        self.body = body

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)


class Caller:
    """Calls the regions of one run. ``checkpointer`` None makes it the caller of a direct run.

    ``step`` is the step of the schedule that is being done.
    """

    def __init__(self, model: Model, recorder: Recorder, checkpointer: Checkpointer | None) -> None:
        self.step: c.Step | None = None
        self._model = model
        self._recorder = recorder
        self._checkpointer = checkpointer
        steps = [s for s in model.case.schedule if isinstance(s, c.Forward | c.Backward)]
        self._failing = {step.fails for step in steps}

    def call_region(self, region: RegionModule, x: torch.Tensor) -> Any:
        """Call a region's callable under the checkpoint, or directly."""
        self._recorder.called(region, torch.is_grad_enabled(), x.requires_grad)
        function = self._prepared(region)
        if self._checkpointer is None:
            return self._call_directly(region, function, x)
        return self._call_checkpointed(region, function, x)

    def region_runs(self, region: RegionModule) -> None:
        """Note that the region's callable is being run."""
        self._recorder.runs(region)

    def region_ends(self) -> None:
        """Note that the callable of the region that was entered last is done, or has raised."""
        self._recorder.ends()

    def region_enters(self, region: RegionModule, context: str) -> None:
        """Note that a context of the region is being entered."""
        self._recorder.enters(region, context)

    def _prepared(self, region: RegionModule) -> Callable[..., Any]:
        """Return a region's callable as it runs now: it keeps its microbatch, and raises where it must."""
        function: Callable[..., Any] = region.function
        first = self._model.first_microbatch
        if first is None and region.number not in self._failing:
            return function

        def prepared(*args: Any, **kwargs: Any) -> Any:
            with self._model.microbatch(first):
                out = function(*args, **kwargs)
            self._raise_if_planned(region)
            return out

        return prepared

    def _raise_if_planned(self, region: RegionModule) -> None:
        if isinstance(self.step, c.Forward | c.Backward) and self.step.fails == region.number:
            raise PlannedError(f"region {region.number} was to raise")

    def _call_directly(self, region: RegionModule, function: Callable[..., Any], x: torch.Tensor) -> Any:
        """Call it under the context in which the checkpointed one would build its graph.

        That is the context of the recompute for a reentrant call with gradients on, else that of the forward.
        """
        forward, recompute = region.contexts()
        reentrant = torch.is_grad_enabled() and region.node.use_reentrant
        # A reentrant checkpoint first sums what its own callable contributes to the gradient of an input;
        # addition being inexact, the direct run must sum in that order too.
        args, kwargs = region.inputs(x, apart=reentrant)
        with recompute if reentrant else forward:
            out = function(*args, **kwargs)
        if region.number in self._failing:
            for result in out if isinstance(out, tuple) else (out,):
                if isinstance(result, torch.Tensor) and result.requires_grad:
                    result.register_hook(lambda _gradient: self._raise_if_planned(region))
        return out

    def _call_checkpointed(self, region: RegionModule, function: Callable[..., Any], x: torch.Tensor) -> Any:
        node = region.node
        args, kwargs = region.inputs(x, apart=False)
        if node.checkpointer == "torch":
            checkpoint = torch.utils.checkpoint.checkpoint
            return checkpoint(function, *args, use_reentrant=node.use_reentrant, **kwargs)
        # A plain reentrant region leaves the flag to its default, as many callers do.
        explicit = not node.use_reentrant or node.contexts is not None
        options: dict[str, Any] = {"use_reentrant": node.use_reentrant} if explicit else {}
        if node.contexts is not None:
            options["context_fn"] = region.contexts
        if self._model.tracker is not None:
            options["get_rng_state_tracker"] = self._model.tracker
        assert self._checkpointer is not None  # noqa: S101 - the direct run's regions are not called here
        if node.checkpointer == "wrapper":
            way = CheckpointImpl.REENTRANT if node.use_reentrant else CheckpointImpl.NO_REENTRANT
            module = region.body if function is region.function else _Calling(function, region.body)
            wrapped = checkpoint_wrapper(module, way, checkpoint_fn=self._checkpointer, **options)
            return wrapped(*args, **kwargs)
        return self._checkpointer(function, *args, **options, **kwargs)
