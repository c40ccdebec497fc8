"""How many cases a second a number of worker processes judge, all at the same time."""

from __future__ import annotations

import functools
import os
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.crew import Crew
from harness.leases import bind
from tests.benchmarks.benchmark_case import CASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.gpus import Gpu
    from harness.target import Target

WARM_UP = 10
SECONDS = 12.0


class Warm(NamedTuple):
    """A worker has judged the warm-up, and waits for the start."""

    started_seconds: float


class Judged(NamedTuple):
    """A worker has judged so many cases in the time."""

    cases: int
    seconds: float


class Throughput(NamedTuple):
    """Of all workers together, and the seconds that each took to start, import and warm up."""

    cases_per_second: float
    start_seconds: list[float]


def measure(target: Target, workers: int, gpus: Sequence[Gpu] = ()) -> Throughput:
    """Start workers, let all begin at once, and add up what they judge in a fixed time.

    They share these GPUs; without any, they see what this process sees.
    """
    visible = ",".join(gpu.word for gpu in gpus) or None
    stopwatch = _Stopwatch(workers)
    crew = Crew(functools.partial(_work, target, visible), stopwatch)
    try:
        crew.start(workers)
        while len(stopwatch.warm) < workers:
            crew.listen()
        for worker in stopwatch.warm:
            crew.tell(worker, SECONDS)
        while len(stopwatch.judged) < workers:
            crew.listen()
    finally:
        crew.end()
    rate = sum(judged.cases / judged.seconds for judged in stopwatch.judged)
    return Throughput(rate, list(stopwatch.warm.values()))


class _Stopwatch:
    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.warm: dict[Connection, float] = {}
        self.judged: list[Judged] = []

    def hear(self, worker: Connection, message: Warm | Judged) -> None:
        if isinstance(message, Warm):
            self.warm[worker] = message.started_seconds
        else:
            self.judged.append(message)

    def bury(self, _worker: Connection, exit_code: int | None) -> None:
        assert len(self.judged) == self._workers, f"a worker ended with {exit_code}"


def _work(target: Target, visible: str | None, connection: Connection) -> None:
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    begun = time.monotonic()
    bind(target.backend)
    session = target.open()
    for _ in range(WARM_UP):
        assert session.judge(CASE).held
    connection.send(Warm(time.monotonic() - begun))
    seconds = connection.recv()
    begun = time.monotonic()
    cases = 0
    while time.monotonic() - begun < seconds:
        # Another seed each time, as in a campaign: nothing may come from a cache.
        assert session.judge(msgspec.structs.replace(CASE, seed=cases)).held
        cases += 1
    connection.send(Judged(cases, time.monotonic() - begun))
