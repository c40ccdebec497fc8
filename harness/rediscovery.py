"""Rediscovery: how many cases it takes to come upon each known issue again, from nothing."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from harness import known_issues, record
from harness.crew import Crew, obituary
from harness.errors import HarnessFault, ReleaseLacks
from harness.leases import bind
from harness.workers import interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from harness import case as c
    from harness.target import Target
    from harness.verdict import Verdict

Firsts: TypeAlias = dict[str, int]
"""Of each issue that was met, the number of the first case that shows it, from 1."""


def first_cases(judge: Callable[[c.Case], Verdict], cases: Sequence[c.Case]) -> Firsts:
    """Judge cases until every known issue has been met, and return when each was."""
    issues = known_issues.load()
    wanted = {issue.id for issue in issues}
    found: Firsts = {}
    for number, case in enumerate(cases, start=1):
        try:
            violations = judge(case).violations
        except ReleaseLacks:
            continue
        for issue in known_issues.explain(case, violations, issues):
            found.setdefault(issue.id, number)
        if found.keys() >= wanted:
            break
    return found


def measure(
    target: Target, seeds: Sequence[int], most: int, workers: int, on_seed: Callable[[int], None]
) -> list[Firsts]:
    """Return for each seed when each issue was met among so many cases of the frontier, drawn unsteered.

    ``on_seed`` is called with the number of seeds that are done. Raises HarnessFault where a worker dies.
    """
    employer = _Employer(seeds, on_seed)
    crew = employer.crew = Crew(partial(_work, target, most), employer)
    with interruptible():
        try:
            crew.start(min(workers, len(seeds)))
            while crew.busy:
                crew.listen()
        finally:
            crew.end()
    return [employer.found[seed] for seed in seeds]


class _Employer:
    """Hands out the seeds, and keeps what comes of them."""

    crew: Crew

    def __init__(self, seeds: Sequence[int], on_seed: Callable[[int], None]) -> None:
        self.found: dict[int, Firsts] = {}
        self._seeds = list(reversed(seeds))
        self._on_seed = on_seed

    def hear(self, worker: Connection, message: tuple[int, Firsts] | None) -> None:
        """Keep what a worker found, and give it another seed, or none."""
        if message is not None:
            seed, firsts = message
            self.found[seed] = firsts
            self._on_seed(len(self.found))
        self.crew.tell(worker, self._seeds.pop() if self._seeds else None)

    def bury(self, _worker: Connection, exit_code: int | None) -> None:
        """Take note that a worker has ended; it must have been told to."""
        if exit_code != 0:
            raise HarnessFault(obituary(exit_code))


def _work(target: Target, most: int, supervisor: Connection) -> None:
    from strategies.frontier import frontier

    bind(target.backend)
    session = target.open()
    supervisor.send(None)
    while (seed := supervisor.recv()) is not None:
        cases = record.draw(frontier(steered=False), most, seed)
        supervisor.send((seed, first_cases(session.judge, cases)))


def median_case(found: Sequence[Firsts], issue: str, most: int) -> int | None:
    """Return the median number of cases that it took to meet an issue; None where that is over ``most``."""
    median = statistics.median_high(firsts.get(issue, most + 1) for firsts in found)
    return None if median > most else median
