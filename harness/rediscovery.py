"""Rediscovery: how many cases it takes to come upon each known issue again, from nothing."""

from __future__ import annotations

import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, TypeAlias

from harness import known_issues, record
from harness.errors import ReleaseLacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

    ``on_seed`` is called with the number of seeds that are done.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(partial(_of_seed, target, seed, most)) for seed in seeds]
        for done, _ in enumerate(as_completed(futures), start=1):
            on_seed(done)
        return [future.result() for future in futures]


def _of_seed(target: Target, seed: int, most: int) -> Firsts:
    from strategies.frontier import frontier

    session = target.open()
    return first_cases(session.judge, record.draw(frontier(steered=False), most, seed))


def median_case(found: Sequence[Firsts], issue: str, most: int) -> int | None:
    """Return the median number of cases that it took to meet an issue; None where that is over ``most``."""
    median = statistics.median_high(firsts.get(issue, most + 1) for firsts in found)
    return None if median > most else median
