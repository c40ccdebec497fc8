"""Judges two traces of one case: what the direct run left and what the checkpointed run left.

Every oracle is a function of (case, direct trace, checkpointed trace) that yields violations. They
compare; they run nothing. Equality of tensors is bitwise.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from harness.case import Case
from harness.comparison import compare_tensors, equal_bits, identical
from harness.graph_traits import dropped_regions, nested_regions
from harness.trace import Call, Event, Phase, Quantity, Trace
from harness.violations import OracleName, Violation

Oracle: TypeAlias = Callable[[Case, Trace, Trace], Iterator[Violation]]


def outputs(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Every forward's output equals the direct run's."""
    yield from _tensors("outputs", "output", direct, checkpointed)


def input_gradients(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Every backward's gradient of the input equals the direct run's, or is None in both."""
    yield from _tensors("input gradients", "input gradient", direct, checkpointed)


def parameter_gradients(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Every backward's gradient of each parameter equals the direct run's, or is None in both."""
    yield from _tensors("parameter gradients", "parameter gradient", direct, checkpointed)


def fp8_state(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Scales and amax histories, forward and backward, equal the direct run's after every iteration."""
    for iteration, layout in direct.state_layout.items():
        other = checkpointed.state_layout.get(iteration)
        if other is not None and other != layout:
            names = sorted({name for name, _ in layout} ^ {name for name, _ in other})
            message = f"the runs hold different FP8 state: {', '.join(names) or 'sizes differ'}"
            yield Violation(oracle="FP8 state", iteration=iteration, message=message)
            return
    yield from _tensors("FP8 state", "FP8 state", direct, checkpointed)


def fifo_drained(_case: Case, _direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """All recompute queues and the list of first-module flags are empty while no graph is pending."""
    for standstill in checkpointed.standstills:
        queues = dict(standstill.queues)
        if standstill.first_flags:
            queues["first-module flags"] = standstill.first_flags
        if queues:
            total = sum(standstill.queues.values())
            message = f"{total} snapshots and {standstill.first_flags} first-module flags left over"
            yield Violation(
                oracle="FIFO drained", iteration=standstill.iteration, message=message, queues=queues
            )
            return


def pairing(case: Case, _direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Each recompute popped the very snapshot that its own phase 1 pushed, region call by region call.

    And there was one to pop: what the case runs under delayed scaling did run so. Of nested regions it is not
    told: what an inner recompute must pop was pushed by the recompute of the outer one.
    """
    nested = nested_regions(case)
    events: dict[tuple[int, int], list[Event]] = {}
    for event in checkpointed.events:
        if event.module:
            events.setdefault((event.region, event.iteration), []).append(event)
    for call in checkpointed.calls:
        if call.recomputes and call.iteration not in checkpointed.mixed and call.region not in nested:
            yield from _pair(call, events.get((call.region, call.iteration), []))


def recompute_count(case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Each callable ran once in phase 1, and once in phase 2 where the checkpoint must recompute.

    On the direct path it ran once in all. Each run under the checkpoint was under the context that
    ``context_fn`` gave for it, where the case has one: entered once, in its own phase. Of nested regions it
    is not told: how often an inner one runs depends on the flags around it.
    """
    nested, dropped = nested_regions(case), dropped_regions(case)
    for name, trace in (("direct", direct), ("checkpointed", checkpointed)):
        done = Counter((e.region, e.iteration, e.phase, e.context) for e in trace.events if not e.module)
        for call in trace.calls:
            if call.iteration in trace.mixed or call.region in nested:
                continue
            due = call.recomputes and call.iteration not in trace.abandoned and call.region not in dropped
            recomputes = int(due and name == "checkpointed")
            yield from _miscounted(call, name, "the callable", "", done, (1, recomputes))
            if call.has_contexts and name == "checkpointed":
                yield from _miscounted(call, name, "the forward's context", "forward", done, (1, 0))
                yield from _miscounted(
                    call, name, "the recompute's context", "recompute", done, (0, recomputes)
                )


def _miscounted(
    call: Call,
    run: str,
    what: str,
    context: str,
    done: Counter[tuple[int, int, Phase, str]],
    expected: tuple[int, int],
) -> Iterator[Violation]:
    phases: tuple[Phase, Phase] = (1, 2)
    counts = tuple(done[call.region, call.iteration, phase, context] for phase in phases)
    if counts != expected:
        message = (
            f"the {run} run went through {what} {counts[0]} times in the forward and {counts[1]} in the"
            f" backward, expected {expected[0]} and {expected[1]}"
        )
        yield Violation(
            oracle="recompute count", iteration=call.iteration, region=call.region, message=message
        )


def global_state(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """TE's and torch's process-wide switches and RNG states are as after the direct run."""
    for mine, other in zip(direct.standstills, checkpointed.standstills, strict=False):
        for (name, expected), (_, actual) in zip(mine.flags, other.flags, strict=True):
            if expected != actual:
                message = f"{name} is {actual}, expected {expected}"
                yield Violation(oracle="global state", iteration=other.iteration, message=message)
                return
    for number, (a, b) in enumerate(zip(direct.rng_states, checkpointed.rng_states, strict=True)):
        if not equal_bits(a, b):
            message = f"the state of random number generator {number} is not as after the direct run"
            last = checkpointed.standstills[-1].iteration if checkpointed.standstills else 0
            yield Violation(oracle="global state", iteration=last, message=message)


def same_errors(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Where the direct run succeeds so does the checkpointed one; where it raises, so does the other."""
    mine, other = direct.error, checkpointed.error
    if mine is None and other is None:
        if direct.failed != checkpointed.failed:
            message = f"regions raised in steps {checkpointed.failed}, expected {direct.failed}"
            yield Violation(oracle="same errors", iteration=0, message=message)
        return
    if mine is not None and other is not None and (mine.step, mine.type) == (other.step, other.type):
        return
    if other is not None:
        expected = "the direct run succeeded" if mine is None else f"the direct run raised {mine.type}"
        cause = "no snapshot to pop: " if _found_no_snapshot(checkpointed) else ""
        message = f"{cause}{other.type}: {other.message} (in {other.doing}; {expected})"
        iteration = other.iteration
    else:
        assert mine is not None  # noqa: S101 - one of the two raised
        message = f"nothing raised: the direct run raised {mine.type}: {mine.message} (in {mine.doing})"
        iteration = mine.iteration
    yield Violation(oracle="same errors", iteration=iteration, message=message)


def _found_no_snapshot(trace: Trace) -> bool:
    """Whether the run ended in a recompute's module that should have popped and did not.

    TE then raises KeyError where the module never pushed, and IndexError where its queue is empty.
    """
    last = trace.events[-1] if trace.events else None
    return last is not None and last.phase == 2 and last.delayed and not last.popped


def steady_memory(_case: Case, direct: Trace, checkpointed: Trace) -> Iterator[Violation]:
    """Once a first backward is done, memory in live tensors grows by no more than in the direct run.

    Both traces keep equally many tensors of equal sizes per iteration, so what they keep cancels out, but for
    the copies of FP8 states, of which a recompute may leave fewer: those are not counted.
    """
    excess = {
        i: checkpointed.memory[i] - held for i, held in direct.memory.items() if i in checkpointed.memory
    }
    for before, after in itertools.pairwise(excess):
        if excess[after] > excess[before]:
            message = f"{excess[after] - excess[before]} bytes more are held than after iteration {before}"
            yield Violation(oracle="steady memory", iteration=after, message=message)
            return


ALL: dict[OracleName, Oracle] = {
    "outputs": outputs,
    "input gradients": input_gradients,
    "parameter gradients": parameter_gradients,
    "FP8 state": fp8_state,
    "FIFO drained": fifo_drained,
    "pairing": pairing,
    "recompute count": recompute_count,
    "global state": global_state,
    "same errors": same_errors,
    "steady memory": steady_memory,
}


_COMPARED_TOGETHER: dict[OracleName, Quantity] = {
    "outputs": "output", "input gradients": "input gradient", "parameter gradients": "parameter gradient",
}  # fmt: skip
"""Oracles that only compare one quantity of both runs."""

_ON_ERRORS: tuple[OracleName, ...] = (
    "outputs", "input gradients", "parameter gradients", "FIFO drained", "same errors",
)  # fmt: skip


def applicable(direct: Trace, checkpointed: Trace) -> tuple[OracleName, ...]:
    """Return the oracles that two traces give grounds for.

    When a run ended in an error, what it left half done says nothing of its own: only the errors, the
    tensors that both runs reached and the standstills before it are judged.
    """
    return tuple(ALL) if direct.error is None and checkpointed.error is None else _ON_ERRORS


def grounded(direct: Trace, checkpointed: Trace) -> tuple[OracleName, ...]:
    """Return the applicable oracles that had something to judge, so that a count of them means something.

    Without delayed scaling no snapshot is due, and without a region nothing is recomputed.
    """
    due = any(event.meant or event.delayed or event.pushed or event.popped for event in checkpointed.events)
    vacuous = set()
    if not due:
        vacuous |= {"FIFO drained", "pairing"}
    if not any(call.recomputes for call in checkpointed.calls):
        vacuous |= {"pairing", "recompute count"}
    if not any(direct.state_layout.values()):
        vacuous.add("FP8 state")
    if len(checkpointed.memory) < 2:
        vacuous.add("steady memory")
    return tuple(name for name in applicable(direct, checkpointed) if name not in vacuous)


def judge(case: Case, direct: Trace, checkpointed: Trace) -> list[Violation]:
    """Return every violation that the applicable oracles find."""
    names = applicable(direct, checkpointed)
    # One comparison for three oracles: a GPU is waited for once, and they are only asked where it fails.
    if identical(_COMPARED_TOGETHER.values(), direct, checkpointed):
        names = tuple(name for name in names if name not in _COMPARED_TOGETHER)
    found = [violation for name in names for violation in ALL[name](case, direct, checkpointed)]
    lengths = {standstill.iteration: standstill.queues for standstill in checkpointed.standstills}
    return [
        violation
        if violation.queues
        else msgspec.structs.replace(violation, queues=lengths.get(violation.iteration, {}))
        for violation in found
    ]


def _tensors(
    oracle: OracleName, quantity: Quantity, direct: Trace, checkpointed: Trace
) -> Iterator[Violation]:
    for key, difference, message, name in compare_tensors(quantity, direct, checkpointed):
        yield Violation(
            oracle=oracle,
            iteration=key.iteration,
            region=direct.region_of(name) if name else None,
            module=name or None,
            message=message,
            difference=difference,
        )


def _pair(call: Call, events: list[Event]) -> Iterator[Violation]:
    pushed: dict[str, list[int]] = {}
    popped: dict[str, list[int]] = {}
    for event in events:
        if event.meant is not None and event.meant != event.delayed:
            how, has = ("without", "has") if event.meant else ("with", "has not")
            yield _unpaired(call, event.module, f"ran {how} delayed scaling, where the case {has} it")
        if event.delayed and len(event.pushed if event.phase == 1 else event.popped) != 1:
            verb, numbers = ("pushed", event.pushed) if event.phase == 1 else ("popped", event.popped)
            yield _unpaired(call, event.module, f"{verb} {len(numbers)} snapshots in one forward, expected 1")
        pushed.setdefault(event.module, []).extend(event.pushed)
        popped.setdefault(event.module, []).extend(event.popped)
    for module, taken in popped.items():
        given = pushed.get(module, [])
        if taken and taken != given[: len(taken)]:
            yield _unpaired(call, module, f"popped snapshot {taken}, expected its own {given}")


def _unpaired(call: Call, module: str, message: str) -> Violation:
    return Violation(
        oracle="pairing", iteration=call.iteration, region=call.region, module=module, message=message
    )
