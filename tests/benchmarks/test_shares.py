"""Where the time of a case goes."""

from __future__ import annotations

import functools
import gc
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from harness import oracles
from harness.execute import Run
from harness.inputs import Inputs
from harness.recorder import Recorder
from tests.benchmarks.benchmark_case import CASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.session import Session

pytestmark = pytest.mark.benchmark(group="shares")

CASES = 200
WARM_UP = 20

Functions = tuple[tuple[Any, str], ...]

WORK: Mapping[str, Functions] = {
    "modules made and watched": ((Run, "__init__"),),
    "forwards": ((Run, "_forward"),),
    "backwards with recomputes": ((Run, "_backward"),),
}
"""What torch and Transformer Engine do, for the most part: the work by hand has it too."""

OWN: Mapping[str, Functions] = {
    "inputs drawn": ((Inputs, "__init__"),),
    "FP8 state kept": ((Run, "_keep_fp8_state"),),
    "what a step leaves: queues, flags, live tensors": ((Run, "_stand_still"),),
    "oracles": ((oracles, "judge"),),
}
"""The harness's own. No part overlaps another."""

WITHIN: Mapping[str, Functions] = {
    "of the work: hooks of the recorder": ((Recorder, "_before"), (Recorder, "_after")),
    "of all: garbage collections": ((gc, "collect"),),
}
"""What is within the others."""

OWN_AT_MOST = 0.15
"""What may be the harness's own, of all the time."""


def test_most_of_the_time_of_a_case_is_work_that_must_be_done(bare_session: Session, benchmark: Any) -> None:
    """Timers stand around functions of the harness.

    On a GPU they tell the time of the CPU, which launches kernels and seldom waits for them.
    """

    def judge() -> None:
        assert bare_session.judge(CASE).held

    for _ in range(WARM_UP):
        judge()
    spent = dict.fromkeys((*WORK, *OWN, *WITHIN), 0.0)
    with timers(spent):
        start = time.perf_counter()
        for _ in range(CASES):
            judge()
        whole = time.perf_counter() - start
    benchmark.pedantic(judge, rounds=CASES)
    shares = {part: seconds / whole for part, seconds in spent.items()}
    shares["all else"] = 1 - sum(shares[part] for part in (*WORK, *OWN))
    benchmark.extra_info.update(shares=shares)
    assert sum(shares[part] for part in (*OWN, "all else")) <= OWN_AT_MOST, shares


def timers(spent: dict[str, float]) -> ExitStack:
    """Put a timer around each function, until the stack is closed."""
    stack = ExitStack()
    for part, functions in {**WORK, **OWN, **WITHIN}.items():
        for owner, name in functions:
            timer = timed(getattr(owner, name), spent, part)
            stack.enter_context(mock.patch.object(owner, name, timer))
    return stack


def timed(function: Callable[..., Any], spent: dict[str, float], part: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[part] += time.perf_counter() - start

    return call
