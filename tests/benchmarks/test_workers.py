"""How the speed grows with workers and with GPUs, and how long a worker takes to start."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import backends, gpus
from harness.pytest_options import OPTIONS
from tests.benchmarks import throughput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.gpus import Gpu
    from harness.target import Target

pytestmark = pytest.mark.benchmark(group="workers")

on_a_gpu = pytest.mark.skipif(backends.active().name != "cuda", reason="asks what one GPU can do")

WORKERS = 16
STARTED_SECONDS = 30


@pytest.fixture(scope="module")
def target(pytestconfig: pytest.Config) -> Target:
    return pytestconfig.stash[OPTIONS].target


@pytest.fixture(scope="module")
def host() -> Iterator[tuple[Gpu, ...]]:
    """All GPUs that this process was started with; it has bound itself to one of them since."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for entry in Path("/proc/self/environ").read_text().split("\0"):
            name, _, words = entry.partition("=")
            if name == "CUDA_VISIBLE_DEVICES":
                patch.setenv(name, words)
        yield gpus.look().gpus


@pytest.fixture(scope="module")
def many(target: Target, host: tuple[Gpu, ...]) -> throughput.Throughput:
    """Sixteen workers on one GPU."""
    return throughput.measure(target, WORKERS, host[:1])


def timed(benchmark: Any, *of: Any) -> throughput.Throughput:
    """Measure, and let pytest-benchmark take the time of it all, start and end of the workers too."""
    measured: throughput.Throughput = benchmark.pedantic(throughput.measure, of, rounds=1)
    benchmark.extra_info.update(cases_per_second=measured.cases_per_second)
    return measured


@on_a_gpu
def test_sixteen_workers_do_ten_times_the_work_of_one(
    target: Target, host: tuple[Gpu, ...], many: throughput.Throughput, benchmark: Any
) -> None:
    alone = timed(benchmark, target, 1, host[:1])
    ratio = many.cases_per_second / alone.cases_per_second
    benchmark.extra_info.update(what="16 workers / 1, on one GPU", ratio=ratio, at_least=10)
    assert ratio >= 10


@on_a_gpu
def test_one_gpu_judges_two_hundred_cases_a_second(
    target: Target, host: tuple[Gpu, ...], benchmark: Any
) -> None:
    rate = timed(benchmark, target, WORKERS, host[:1]).cases_per_second
    benchmark.extra_info.update(what="cases a second, 16 workers", ratio=rate, at_least=200)
    assert rate >= 200


@on_a_gpu
def test_two_gpus_do_nearly_twice_the_work_of_one(
    target: Target, host: tuple[Gpu, ...], many: throughput.Throughput, benchmark: Any
) -> None:
    if len(host) < 2:
        pytest.skip("needs two GPUs")
    both = timed(benchmark, target, 2 * WORKERS, host[:2])
    ratio = both.cases_per_second / many.cases_per_second
    benchmark.extra_info.update(what="32 workers on 2 GPUs / 16 on 1", ratio=ratio, at_least=1.8)
    assert ratio >= 1.8


def test_a_worker_is_at_work_soon(target: Target, benchmark: Any) -> None:
    seconds = statistics.median(timed(benchmark, target, 1).start_seconds)
    benchmark.extra_info.update(
        what="seconds to a worker's first verdict", ratio=seconds, at_most=STARTED_SECONDS
    )
    assert seconds <= STARTED_SECONDS
