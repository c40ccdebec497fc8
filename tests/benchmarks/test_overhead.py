"""What the harness costs over the same work written by hand."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks import by_hand
from tests.benchmarks.benchmark_case import CASE

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.session import Session

pytestmark = pytest.mark.benchmark(group="one case")

LIMITS = {"cpu": 1.2, "cuda": 1.15}
"""The most that the harness may take, as a multiple of the time by hand."""
PAIRS = 100


def seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def test_the_harness_takes_little_more_than_the_work_by_hand(bare_session: Session, benchmark: Any) -> None:
    """Both in turn, so that whatever else the machine does slows both; the median of the ratios counts."""

    def harness() -> None:
        assert bare_session.judge(CASE).held

    def hand() -> None:
        by_hand.compare_by_hand(bare_session.backend.device)

    for warm_up in (harness, hand) * 5:
        warm_up()
    ratios = [seconds(harness) / seconds(hand) for _ in range(PAIRS)]
    benchmark.pedantic(harness, rounds=PAIRS)
    ratio = statistics.median(ratios)
    limit = LIMITS[bare_session.backend.name]
    benchmark.extra_info.update(what="one case / the same by hand", ratio=ratio, at_most=limit)
    assert ratio <= limit, statistics.quantiles(ratios)
