"""Runs a case once, directly or under a checkpointer, and returns the trace."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from harness import case as c
from harness.build import Model
from harness.errors import HarnessError, HarnessFault
from harness.leaves import DTYPES
from harness.recorder import Recorder
from harness.trace import Closeup, Quantity, RunError, Standstill, TensorKey, Trace

if TYPE_CHECKING:
    from harness.backends import Backend
    from harness.build import RegionModule
    from harness.probe import Probe

Checkpointer: TypeAlias = Callable[..., Any]
"""A function with the signature of ``te.checkpoint``."""

LEARNING_RATE = 0.125
_BATCH = 2
_MESSAGE = 300
"""Characters of an error's message that are kept."""


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


class Run:
    """One walk through a case's schedule. ``checkpointer`` None makes it the direct run."""

    def __init__(
        self,
        case: c.Case,
        inputs: Inputs,
        backend: Backend,
        probe: Probe,
        checkpointer: Checkpointer | None,
        closeup: Closeup | None = None,
    ) -> None:
        probe.reset()
        backend.seed(case.seed)
        self.trace = Trace(closeup=closeup)
        self._case = case
        self._inputs = inputs
        self._backend = backend
        self._probe = probe
        self._checkpointer = checkpointer
        self._model = Model(case, backend.device, recompute=checkpointer is not None)
        self._recorder = Recorder(self._model, probe, self.trace)
        paths = {id(module): path for path, module in self._model.root.named_modules()}
        for region in self._model.regions:
            region.caller = self
            self.trace.region_paths.append(paths[id(region)])
        self._optimizer: torch.optim.Optimizer | None = None
        self._steady = False
        self._iterations = 0
        self._pending: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    # --- What a region asks of its run (harness.build.RegionCaller) ---

    def call_region(self, region: RegionModule, x: torch.Tensor) -> Any:
        """Call a region's callable under the checkpoint, or directly.

        Directly, the callable runs under the context in which the checkpointed one would build its
        graph: that of the recompute for a reentrant call with gradients on, else that of the forward.
        """
        grad_enabled = torch.is_grad_enabled()
        self._recorder.called(region, grad_enabled, x.requires_grad)
        if self._checkpointer is None:
            forward, recompute = region.contexts()
            context = forward
            if grad_enabled and region.node.use_reentrant:
                context = recompute
                # A reentrant checkpoint first sums what its own callable contributes to the gradient of
                # an input; addition being inexact, the direct run must sum in that order too.
                x = x.view_as(x)
            with context:
                return region.function(x, *region.args, **region.kwargs)
        # A plain reentrant region leaves the flag to its default, as many callers do.
        explicit = not region.node.use_reentrant or region.node.contexts is not None
        options: dict[str, Any] = {"use_reentrant": region.node.use_reentrant} if explicit else {}
        if region.node.contexts is not None:
            options["context_fn"] = region.contexts
        if self._model.tracker is not None:
            options["get_rng_state_tracker"] = self._model.tracker
        return self._checkpointer(region.function, x, *region.args, **options, **region.kwargs)

    def region_runs(self, region: RegionModule) -> None:
        """Note that the region's callable is being run."""
        self._recorder.runs(region)

    def region_enters(self, region: RegionModule, context: str) -> None:
        """Note that a context of the region is being entered."""
        self._recorder.enters(region, context)

    # --- The schedule ---

    def run(self) -> Trace:
        """Walk the schedule to its end or to the first error, and return the trace."""
        for number, step in enumerate(self._case.schedule):
            result = self._act(number, step)
            self._recorder.step_ended()
            if self.trace.error is not None:
                break
            self._note(step, result)
        self.trace.rng_states = (*self._backend.rng_states(), *self._tracked_states())
        self._recorder.close()
        if self.trace.closeup is not None:
            self.trace.closeup.pending = tuple(iteration for iteration, *_ in self._pending)
        for region in self._model.regions:
            region.caller = None
        return self.trace

    def _tracked_states(self) -> list[torch.Tensor]:
        """Return the tracker's states, which TE holds as tensors or, on CUDA, as generators."""
        tracked = self._model.tracker().get_states() if self._model.tracker else None
        # Nothing of TE's is taken for granted here either: a tracker that has lost its states has none.
        states = tracked.values() if isinstance(tracked, dict) else ()
        return [s.get_state() if isinstance(s, torch.Generator) else s for s in states]

    def _act(self, number: int, step: c.Step) -> torch.Tensor | None:
        """Do a step; what it raises is what the oracles judge, unless it is the harness's own error."""
        self._recorder.step = number
        self._recorder.phase = 2 if isinstance(step, c.Backward) else 1
        try:
            return self._do(number, step)
        except HarnessError:
            raise
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise HarnessFault(f"out of memory in step {number}: run fewer workers") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A function under test may raise anything, with a message of any length and content.
            message = str(error).split("\n", 1)[0][:_MESSAGE].encode("utf-8", "replace").decode()
            where = number, type(step).__name__, self._recorder.iteration
            self.trace.error = RunError(*where, type(error).__name__, message)
        return None

    def _do(self, number: int, step: c.Step) -> torch.Tensor | None:
        match step:
            case c.SetMode():
                self._model.leaves[step.module].train(step.training)
            case c.Forward():
                return self._forward(self._inputs[number])
            case c.Backward():
                return self._backward(self._inputs[number], step.which)
            case c.Abandon():
                self._recorder.iteration, *_ = self._pending.pop(step.which)
                self.trace.abandoned.add(self._recorder.iteration)
            case c.Evaluate():
                return self._evaluate(self._inputs[number], step.mode)
            case c.OptimizerStep():
                self._optimizer_step()
        return None

    def _forward(self, data: torch.Tensor) -> torch.Tensor:
        iteration = self._begin_iteration()
        for _, parameter in self._model.parameters:
            parameter.grad = None
        # A copy: what a function under test does to its input must not reach the other runs.
        x = data.clone().requires_grad_(self._case.input_requires_grad)
        # Not the leaf itself: torch's autocast casts a leaf once for all that use it, and a region that used
        # it first would change in which order the gradients of the others are summed.
        out = self._call_model(x.view_as(x))
        self._pending.append((iteration, x, out))
        return out.detach()

    def _backward(self, gradient: torch.Tensor, which: int) -> torch.Tensor | None:
        if which >= len(self._pending):
            raise HarnessFault("a backward without a pending forward: the case was not checked")
        # What the backward does belongs to the iteration of its forward.
        self._recorder.iteration, x, out = self._pending.pop(which)
        torch.autograd.backward([out], [gradient.to(out.dtype, copy=True)])
        return x.grad

    def _evaluate(self, data: torch.Tensor, mode: str) -> torch.Tensor:
        self._begin_iteration()
        with torch.inference_mode() if mode == "inference_mode" else torch.no_grad():
            return self._call_model(data.clone()).detach()

    def _begin_iteration(self) -> int:
        """Return the number of the iteration that begins here: each forward and each evaluation is one."""
        self._recorder.iteration = self._iterations
        self._iterations += 1
        return self._recorder.iteration

    def _optimizer_step(self) -> None:
        if self._optimizer is None:
            learned = [p for _, p in self._model.parameters if p.requires_grad]
            if not learned:
                return
            self._optimizer = torch.optim.SGD(learned, lr=LEARNING_RATE)
        self._optimizer.step()

    def _note(self, step: c.Step, result: torch.Tensor | None) -> None:
        """Record what a step left. Nothing here is TE's: what goes wrong is a fault of the harness."""
        if isinstance(step, c.Forward | c.Evaluate):
            self._keep("output", result)
        elif isinstance(step, c.Backward):
            # The first recompute allocates what TE then keeps for good: memory is steady from here on.
            self._steady = True
            self._keep("input gradient", result)
            for name, parameter in self._model.parameters:
                self._keep("parameter gradient", parameter.grad, name)
        if isinstance(step, c.Backward | c.Evaluate | c.Abandon):
            self._keep_fp8_state()
            if not self._pending:
                self._stand_still()

    def _call_model(self, x: torch.Tensor) -> torch.Tensor:
        with ExitStack() as stack:
            if self._case.torch_autocast:
                # TE asks for the state of "cuda" whatever the device; torch's modules for their own.
                for device in sorted({"cuda", self._backend.device.type}):
                    stack.enter_context(torch.autocast(device, torch.bfloat16))
            out: torch.Tensor = self._model.root(x)
        return out

    def _keep(self, quantity: Quantity, tensor: torch.Tensor | None, name: str = "") -> None:
        self.trace.tensors[TensorKey(quantity, self._recorder.iteration, name)] = tensor

    def _keep_fp8_state(self) -> None:
        """Record scales and amax histories, packed into one tensor."""
        state = list(self._probe.fp8_state(self._model.root))
        layout = [(name, tensor.numel()) for name, tensor in state]
        self.trace.state_layout[self._recorder.iteration] = layout
        if state:
            with torch.no_grad():
                packed = torch.cat([tensor.detach().reshape(-1) for _, tensor in state])
            self._keep("FP8 state", packed)

    def _stand_still(self) -> None:
        """Record what must hold while no graph is pending."""
        iteration = self._recorder.iteration
        flags = (*self._probe.flags(), *self._model.switches())
        self.trace.standstills.append(
            Standstill(iteration, self._recorder.queues(), len(self._probe.first_flags()), flags)
        )
        if self._steady:
            gc.collect()
            self.trace.memory[iteration] = self._backend.memory_held()


def run_direct(case: c.Case, inputs: Inputs, backend: Backend, probe: Probe) -> Trace:
    """Run a case without any checkpoint."""
    return _run(case, inputs, backend, probe, None)


def run_checkpointed(
    case: c.Case,
    inputs: Inputs,
    backend: Backend,
    probe: Probe,
    checkpointer: Checkpointer,
    closeup: Closeup | None = None,
) -> Trace:
    """Run a case with its regions under a checkpointer, noting in ``closeup`` what a picture needs."""
    return _run(case, inputs, backend, probe, checkpointer, closeup)


def _run(
    case: c.Case,
    inputs: Inputs,
    backend: Backend,
    probe: Probe,
    checkpointer: Checkpointer | None,
    closeup: Closeup | None = None,
) -> Trace:
    # With all older objects frozen, collecting what this run left costs a millisecond instead of hundreds,
    # and the backend's count of live tensors sees this run's alone. TE's modules hold reference cycles.
    gc.freeze()
    try:
        with warnings.catch_warnings():
            # TE's and torch's advice on how a case is written; made errors, they would change the run.
            warnings.simplefilter("ignore")
            return Run(case, inputs, backend, probe, checkpointer, closeup).run()
    finally:
        gc.collect()
        gc.unfreeze()
