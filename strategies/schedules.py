"""Schedules: iterations, evaluations, modes switched, optimizer steps, and the sizes of what flows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from harness import case as c
from strategies.weights import rarely, weighted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strategies.grad_modes import EvaluationMode

MAX_ITERATIONS: Final = 4

Pattern: TypeAlias = Callable[[int, int], float]
"""The magnitude of an iteration, from its number and the number of iterations."""


def _constant(number: int, count: int) -> float:  # noqa: ARG001
    return 1.0


def _spike(number: int, count: int) -> float:
    return 1000.0 if number == count // 2 else 1.0


def _growth(number: int, count: int) -> float:  # noqa: ARG001
    return 8.0**number


def _decay(number: int, count: int) -> float:  # noqa: ARG001
    return 8.0**-number


def _gap(number: int, count: int) -> float:
    return 0.0 if number == count // 2 else 1.0


def _zeros(number: int, count: int) -> float:  # noqa: ARG001
    # Rule j: a zero amax is skipped by the update, with and without a checkpoint.
    return 0.0


def _tiny(number: int, count: int) -> float:  # noqa: ARG001
    return 1e-6


# What moves a scale is a magnitude that differs from the ones before it, and what a history hides is when.
_FORWARD_PATTERNS: Final = weighted(
    (10, _constant), (3, _spike), (3, _growth), (3, _decay), (2, _gap), (1, _zeros), (2, _tiny)
)
_BACKWARD_PATTERNS: Final = weighted(
    (18, _constant), (3, _spike), (3, _growth), (3, _decay), (2, _gap), (1, _zeros), (2, _tiny)
)


_NONE: Final[st.SearchStrategy[list[Any]]] = st.sampled_from([[], []])
"""Nothing, at the cost of a draw: what restricts a schedule must not make it look simpler to the shrinker."""


_PIPELINED: Final = weighted((4, False), (1, True))


class Iteration(NamedTuple):
    """What one iteration adds to its forward and backward; modules are named by number."""

    evaluations: list[c.Evaluate]
    flipped_before_forward: list[int]
    flipped_before_backward: list[int]
    optimizer_step: bool


@cache
def _evaluations(modes: tuple[EvaluationMode, ...]) -> st.SearchStrategy[list[c.Evaluate]]:
    if not modes:
        return _NONE
    mode = st.sampled_from([*modes, modes[0]])
    evaluation = st.builds(c.Evaluate, magnitude=st.sampled_from([1.0, 100.0]), mode=mode)
    return rarely(14, st.lists(evaluation, min_size=1, max_size=3), otherwise=[])


@cache
def _flips(numbers: tuple[int, ...]) -> st.SearchStrategy[list[int]]:
    if not numbers:
        return _NONE
    return rarely(12, st.lists(st.sampled_from(numbers), min_size=1, max_size=2, unique=True), otherwise=[])


@cache
def _iterations(
    count: int, sensitive: frozenset[int], evaluations: tuple[EvaluationMode, ...]
) -> st.SearchStrategy[list[Iteration]]:
    # Rule h: where the mode decides the output, as dropout does, a recompute in another mode than the forward
    # computes something else, checkpoint or not.
    insensitive = tuple(number for number in range(count) if number not in sensitive)
    iteration = st.builds(
        Iteration,
        _evaluations(evaluations),
        _flips(tuple(range(count))),
        _flips(insensitive),
        weighted((2, False), (1, True)),
    )
    return st.lists(iteration, min_size=1, max_size=MAX_ITERATIONS)


class _Modes:
    """The mode of every module as the schedule goes on, so that each switch is a real one."""

    def __init__(self, training: Sequence[bool]) -> None:
        self._training = list(training)

    def flip(self, numbers: list[int]) -> list[c.Step]:
        steps: list[c.Step] = []
        for number in numbers:
            self._training[number] = not self._training[number]
            steps.append(c.SetMode(number, self._training[number]))
        return steps


@st.composite
def _schedule(
    draw: st.DrawFn,
    training: tuple[bool, ...],
    sensitive: frozenset[int],
    evaluations: tuple[EvaluationMode, ...],
) -> tuple[c.Step, ...]:
    iterations = draw(_iterations(len(training), sensitive, evaluations))
    forward, backward = draw(_FORWARD_PATTERNS), draw(_BACKWARD_PATTERNS)
    modes, count = _Modes(training), len(iterations)
    rounds = [
        _Round(iteration, c.Forward(forward(number, count)), c.Backward(backward(number, count)))
        for number, iteration in enumerate(iterations)
    ]
    pipelined = draw(_PIPELINED) and count > 1
    steps = _pipelined(rounds, modes, sensitive) if pipelined else _one_by_one(rounds, modes)
    return (_out_of_inference_mode(steps[0]), *steps[1:], *draw(_evaluations(evaluations)))


class _Round(NamedTuple):
    """An iteration with its forward and its backward."""

    iteration: Iteration
    forward: c.Forward
    backward: c.Backward


def _one_by_one(rounds: list[_Round], modes: _Modes) -> list[c.Step]:
    """Arrange a schedule in which each forward is followed by its backward."""
    steps: list[c.Step] = []
    for iteration, forward, backward in rounds:
        steps += iteration.evaluations
        steps += modes.flip(iteration.flipped_before_forward)
        steps.append(forward)
        steps += modes.flip(iteration.flipped_before_backward)
        steps.append(backward)
        steps += [c.OptimizerStep()] * iteration.optimizer_step
    return steps


def _pipelined(rounds: list[_Round], modes: _Modes, sensitive: frozenset[int]) -> list[c.Step]:
    """Arrange a schedule as a stage of a pipeline does: one forward ahead of the backwards.

    Rule r: the backwards come in the order of the forwards, since TE's queues are first in, first out. While
    a graph is pending nothing is evaluated, no parameter changes, and by rule h no sensitive mode.
    """
    steps: list[c.Step] = [evaluation for iteration, *_ in rounds for evaluation in iteration.evaluations]
    pending: c.Backward | None = None
    for iteration, forward, backward in rounds:
        flipped = iteration.flipped_before_forward
        steps += modes.flip([module for module in flipped if pending is None or module not in sensitive])
        steps.append(forward)
        if pending is not None:
            steps += modes.flip(iteration.flipped_before_backward)
            steps.append(pending)
        pending = backward
    optimizer_step = any(iteration.optimizer_step for iteration, *_ in rounds)
    return [*steps, rounds[-1].backward, *[c.OptimizerStep()] * optimizer_step]


def _out_of_inference_mode(first: c.Step) -> c.Step:
    """Return the first step of a schedule, in another mode if it is an evaluation in inference mode.

    Rule m: the FP8 state that the first forward creates would be made of inference tensors, which the
    recompute cannot put back in place ("Inplace update to inference tensor outside InferenceMode").
    """
    return c.Evaluate(first.magnitude) if isinstance(first, c.Evaluate) else first


def schedules(
    training: Sequence[bool],
    *,
    mode_sensitive: Collection[int] = (),
    evaluations: Sequence[EvaluationMode] = ("no_grad", "inference_mode"),
) -> st.SearchStrategy[tuple[c.Step, ...]]:
    """Draw a schedule of one to four iterations for modules that start in these modes.

    Each iteration is a forward and its backward, perhaps with evaluations and switched modes before it, with
    modes switched between the two, and with an optimizer step after it. Some schedules are those of a
    pipeline's stage, with the next forward before each backward. Modules in ``mode_sensitive`` are
    not switched between the two; ``evaluations`` are the modes in which the graph may be evaluated.
    Shrinks towards one forward and one backward of magnitude 1.
    """
    if not training:
        raise InvalidArgument("schedules() needs the mode of at least one module")
    outside = [number for number in mode_sensitive if not 0 <= number < len(training)]
    if outside:
        raise InvalidArgument(f"schedules() has {len(training)} modules, and no module {outside[0]}")
    return _schedule(tuple(training), frozenset(mode_sensitive), tuple(evaluations))
