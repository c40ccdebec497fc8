"""Runs a case once, directly or under a checkpointer, and returns the trace."""

from __future__ import annotations

import copy
import gc
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from harness import case as c
from harness.build import Model, make_recipe
from harness.caller import Caller, Checkpointer, PlannedError
from harness.errors import HarnessError, HarnessFault
from harness.gradients import accumulated, given, gradients_grow
from harness.inputs import Inputs
from harness.recorder import Recorder
from harness.trace import Closeup, Quantity, RunError, Standstill, TensorKey, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.backends.base import Backend
    from harness.gradients import Gradients
    from harness.probe import Probe

LEARNING_RATE = 0.125
_MESSAGE = 300
"""Characters of an error's message that are kept."""


class _Pending(NamedTuple):
    """A forward whose backward is still to come: its iteration, its input and its output."""

    iteration: int
    x: torch.Tensor
    out: torch.Tensor


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
        self._model = Model(case, backend.device, recompute=checkpointer is not None)
        self._recorder = Recorder(self._model, probe, self.trace, snapshots=checkpointer is not None)
        self._holders = probe.holders(self._model.root)
        self._caller = Caller(self._model, self._recorder, checkpointer)
        paths = {id(module): path for path, module in self._model.root.named_modules()}
        for region in self._model.regions:
            region.caller = self._caller
            self.trace.region_paths.append(paths[id(region)])
        self._optimizer: torch.optim.Optimizer | None = None
        self._steady = False
        self._settles = 0
        self._iterations = 0
        self._pending: list[_Pending] = []
        self._backwards: Counter[int] = Counter()
        self._open: list[ExitStack] = []
        self._saved: dict[str, Any] | None = None
        self._cut_short = False
        self._accumulated = partial(accumulated, copied=gradients_grow(case.schedule))

    def run(self) -> Trace:
        """Walk the schedule to its end or to the first error, and return the trace."""
        try:
            self._walk()
        finally:
            self._recorder.close()
            for region in self._model.regions:
                region.caller = None
        return self.trace

    def _walk(self) -> None:
        with ExitStack() as self._opened:
            for number, step in enumerate(self._case.schedule):
                self._caller.step = step
                self._cut_short = False
                with self._judged(number, step):
                    self._do(number, step)
                self._recorder.step_ended()
                if self.trace.error is not None:
                    break
                if isinstance(step, c.Forward | c.Backward | c.Evaluate | c.Abandon):
                    self._note(step)
        self.trace.rng_states = (*self._backend.rng_states(), *self._tracked_states())
        if self.trace.closeup is not None:
            self.trace.closeup.pending = tuple(iteration for iteration, *_ in self._pending)

    def _tracked_states(self) -> list[torch.Tensor]:
        """Return the tracker's states, which TE holds as tensors or, on CUDA, as generators."""
        tracked = self._model.tracker().get_states() if self._model.tracker else None
        # Nothing of TE's is taken for granted here either: a tracker that has lost its states has none.
        states = tracked.values() if isinstance(tracked, dict) else ()
        return [s.get_state() if isinstance(s, torch.Generator) else s for s in states]

    @contextmanager
    def _judged(self, number: int, step: c.Step) -> Iterator[None]:
        """Keep what a step raises, which is what the oracles judge, unless it is the harness's own error."""
        self._recorder.step = number
        self._recorder.phase = 2 if isinstance(step, c.Backward) else 1
        try:
            yield
        except (HarnessError, KeyboardInterrupt):
            raise
        except PlannedError:
            # The training loop catches it, and goes on without this iteration's graph.
            self.trace.failed.append(number)
            self.trace.mixed.add(self._recorder.iteration)
            self._cut_short = True
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise HarnessFault(f"out of memory in step {number}: run fewer workers") from error
        except BaseException as error:
            # A function under test may raise anything, with a message of any length and content.
            message = str(error).split("\n", 1)[0][:_MESSAGE].encode("utf-8", "replace").decode()
            where = number, type(step).__name__, self._recorder.iteration
            self.trace.error = RunError(*where, type(error).__name__, message)

    # --- Steps ---

    def _do(self, number: int, step: c.Step) -> None:
        match step:
            case c.SetMode():
                self._model.leaves[step.module].train(step.training)
            case c.Forward():
                self._forward(self._inputs[number], step)
            case c.Backward():
                self._backward(self._inputs[number], step)
            case c.Abandon():
                self._recorder.iteration, *_ = self._pending.pop(step.which)
                self.trace.abandoned.add(self._recorder.iteration)
            case c.Evaluate():
                self._evaluate(self._inputs[number], step.mode)
            case c.OptimizerStep():
                self._optimizer_step()
            case _:
                self._rearrange(step)

    def _rearrange(self, step: c.Step) -> None:
        """Do a step that runs nothing by itself."""
        self._unsettle()
        match step:
            case c.OpenAutocast():
                self._open.append(self._opened.enter_context(ExitStack()))
                self._open[-1].enter_context(self._model.autocast())
            case c.CloseAutocast():
                self._open.pop().close()
            case c.SetRecipe():
                self._model.recipe = make_recipe(step.recipe)
            case c.SaveState():
                self._saved = copy.deepcopy(self._model.root.state_dict())
            case c.LoadState():
                self._load_state(extra=step.extra)
            case c.DeepCopy():
                self._recorder.unwatch()
                self._model.deep_copy(beside=step.beside)
                self._recorder.watch(self._model)
                self._holders = self._probe.holders(self._model.root)
                self._optimizer = None

    def _unsettle(self) -> None:
        """What TE is made to allocate now is there for good after the backward of a forward to come."""
        self._steady = False
        self._settles = self._iterations
        self.trace.memory.clear()

    def _forward(self, data: torch.Tensor, step: c.Forward) -> None:
        if step.first_microbatch:
            self._unsettle()
        iteration = self._begin_iteration()
        for _, parameter in self._model.parameters:
            parameter.grad = None
        # A copy: what a function under test does to its input must not reach the other runs.
        x = data.clone().requires_grad_(self._case.input_requires_grad)
        # Not the leaf itself: torch's autocast casts a leaf once for all that use it, and a region that used
        # it first would change in which order the gradients of the others are summed.
        with self._model.microbatch(step.first_microbatch):
            out = self._call_model(x.view_as(x))
        self._pending.append(_Pending(iteration, x, out))
        self._keep("output", out.detach())

    def _backward(self, gradient: torch.Tensor, step: c.Backward) -> None:
        taken = slice(step.which, step.which + step.losses)
        going = self._pending[taken]
        if len(going) < step.losses:
            raise HarnessFault("a backward without a pending forward: the case was not checked")
        # What the backward does belongs to the iteration of its forward.
        self._recorder.iteration = going[0].iteration
        if step.losses > 1 or step.retain:
            self.trace.mixed |= {forward.iteration for forward in going}
        if not step.retain:
            del self._pending[taken]
        wanted = [forward.x for forward in going] + [parameter for _, parameter in self._model.parameters]
        outs = [forward.out for forward in going]
        incoming = [gradient.to(out.dtype, copy=True) for out in outs]
        take = given if step.way == "grad" else self._accumulated
        self._keep_gradients(going, take(outs, incoming, wanted, retain=step.retain))

    def _keep_gradients(self, going: list[_Pending], gradients: Gradients) -> None:
        # The first recompute allocates what TE then keeps for good: memory is steady from here on.
        self._steady |= going[0].iteration >= self._settles
        gone = self._backwards[going[0].iteration]
        self._backwards[going[0].iteration] += 1
        again = f" (backward {gone + 1})" if gone else ""
        found = iter(gradients)
        for forward in going:
            self._keep("input gradient", next(found), again, iteration=forward.iteration)
        for name, _ in self._model.parameters:
            self._keep("parameter gradient", next(found), name + again)

    def _evaluate(self, data: torch.Tensor, mode: str) -> None:
        self.trace.abandoned.add(self._begin_iteration())
        with torch.inference_mode() if mode == "inference_mode" else torch.no_grad():
            self._keep("output", self._call_model(data.clone()).detach())

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

    def _load_state(self, *, extra: bool) -> None:
        state = copy.deepcopy(self._saved or self._model.root.state_dict())
        if not extra:
            self._model.root.load_state_dict(state)
            return
        for path, module in self._probe.fp8_modules(self._model.root):
            module.set_extra_state(state[f"{path}._extra_state" if path else "_extra_state"])

    # --- What a step leaves ---

    def _note(self, step: c.Step) -> None:
        """Record what a step left. Nothing here is TE's: what goes wrong is a fault of the harness."""
        if not isinstance(step, c.Forward) or self._cut_short:
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

    def _keep(
        self, quantity: Quantity, tensor: torch.Tensor | None, name: str = "", iteration: int | None = None
    ) -> None:
        number = self._recorder.iteration if iteration is None else iteration
        self.trace.tensors[TensorKey(quantity, number, name)] = tensor

    def _keep_fp8_state(self) -> None:
        """Record scales and amax histories, packed into one tensor."""
        state = list(self._probe.fp8_state(self._holders))
        layout = [(name, tensor.numel()) for name, tensor in state]
        self.trace.state_layout[self._recorder.iteration] = layout
        if state:
            with torch.no_grad():
                packed = torch.cat([tensor.reshape(-1) for _, tensor in state])
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
            # Where a recompute leaves a module without FP8 state, there is less of it to keep in one run.
            states = (
                t for key, t in self.trace.tensors.items() if key.quantity == "FP8 state" and t is not None
            )
            kept = sum(map(self._backend.footprint, states))
            self.trace.memory[iteration] = self._backend.memory_held() - kept


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
