"""What it costs to note every case on the disk before it is judged."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.campaign import ROUND
from harness.inflight import InFlight
from tests.benchmarks.benchmark_case import CASE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.session import Session

pytestmark = pytest.mark.benchmark(group="one case")

LIMIT = 1.03
PAIRS = 32


def test_noting_each_case_before_it_is_judged_costs_next_to_nothing(
    te_session: Session, tmp_path: Path, benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of cases with and without it, each first in turn; the median of the ratios counts."""
    cases = [msgspec.structs.replace(CASE, seed=seed) for seed in range(ROUND)]
    flight = InFlight(tmp_path / "worker.case")

    def noted() -> None:
        monkeypatch.setattr(te_session, "noted", flight.judging)
        flight.announce(cases)
        for case in cases:
            te_session.judge(case)

    def plain() -> None:
        monkeypatch.setattr(te_session, "noted", lambda _case: contextlib.nullcontext())
        for case in cases:
            te_session.judge(case)

    def seconds(judge: Callable[[], None]) -> float:
        begun = time.perf_counter()
        judge()
        return time.perf_counter() - begun

    plain()
    ratios = []
    for _ in range(PAIRS // 2):
        ratios.append(seconds(noted) / seconds(plain))
        ratios.append(1 / (seconds(plain) / seconds(noted)))
    benchmark.pedantic(noted, rounds=1)
    ratio = statistics.median(ratios)
    benchmark.extra_info.update(what="each case noted on the disk / none", ratio=ratio, at_most=LIMIT)
    assert ratio <= LIMIT, statistics.quantiles(ratios)
