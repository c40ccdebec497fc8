"""What the harness costs over the same work written by hand."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness import case as c
from tests.benchmarks import by_hand

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.session import Session

pytestmark = pytest.mark.benchmark(group="one case")

LIMIT = 1.25
"""The most that the harness may take, as a multiple of the time by hand."""
PAIRS = 60

CASE = c.Case(
    graph=c.Autocast(c.Region(c.Chain((c.Linear(), c.LayerNormLinear(), c.LayerNormMLP())))),
    schedule=(c.Forward(), c.Backward()) * by_hand.ITERATIONS,
    rows=by_hand.ROWS,
    width=by_hand.WIDTH,
)


def through_harness(session: Session) -> None:
    assert session.judge(CASE).held


def seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def test_case_through_the_harness(benchmark: Any, te_session: Session) -> None:
    benchmark.pedantic(through_harness, args=(te_session,), rounds=30, warmup_rounds=3)


def test_case_by_hand(benchmark: Any, te_session: Session) -> None:
    benchmark.pedantic(by_hand.compare_by_hand, args=(te_session.backend.device,), rounds=30, warmup_rounds=3)


def test_the_harness_takes_little_more_than_the_work_by_hand(
    te_session: Session, record_property: Callable[[str, object], None]
) -> None:
    """Both in turn, so that whatever else the machine does slows both; the median of the ratios counts."""

    def harness() -> None:
        through_harness(te_session)

    def hand() -> None:
        by_hand.compare_by_hand(te_session.backend.device)

    for warm_up in (harness, hand) * 3:
        warm_up()
    ratios = [seconds(harness) / seconds(hand) for _ in range(PAIRS)]
    ratio = statistics.median(ratios)
    record_property("ratio", ratio)
    print(f"\nharness / by hand: {ratio:.3f} (median of {PAIRS}; quartiles {statistics.quantiles(ratios)})")
    assert ratio <= LIMIT
