"""How the speed grows with workers and with GPUs, and how long a worker takes to start."""

from __future__ import annotations

import statistics
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
    """All GPUs of this machine: this process itself is bound to one of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield gpus.look().gpus


@pytest.fixture(scope="module")
def many(target: Target, host: tuple[Gpu, ...]) -> throughput.Throughput:
    """Sixteen workers on one GPU."""
    return throughput.measure(target, WORKERS, host[:1])


def timed(benchmark: Any, measured: throughput.Throughput) -> None:
    """Give pytest-benchmark the time of a case, as it was measured."""
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info.update(cases_per_second=measured.cases_per_second)


@on_a_gpu
def test_sixteen_workers_do_ten_times_the_work_of_one(
    target: Target, host: tuple[Gpu, ...], many: throughput.Throughput, benchmark: Any
) -> None:
    alone = throughput.measure(target, 1, host[:1])
    timed(benchmark, many)
    ratio = many.cases_per_second / alone.cases_per_second
    benchmark.extra_info.update(what="16 workers / 1, on one GPU", ratio=ratio, at_least=10)
    assert ratio >= 10


@on_a_gpu
def test_one_gpu_judges_two_hundred_cases_a_second(many: throughput.Throughput, benchmark: Any) -> None:
    timed(benchmark, many)
    benchmark.extra_info.update(what="cases a second, 16 workers", ratio=many.cases_per_second, at_least=200)
    assert many.cases_per_second >= 200


@on_a_gpu
def test_two_gpus_do_nearly_twice_the_work_of_one(
    target: Target, host: tuple[Gpu, ...], many: throughput.Throughput, benchmark: Any
) -> None:
    if len(host) < 2:
        pytest.skip("needs two GPUs")
    both = throughput.measure(target, 2 * WORKERS, host[:2])
    timed(benchmark, both)
    ratio = both.cases_per_second / many.cases_per_second
    benchmark.extra_info.update(what="32 workers on 2 GPUs / 16 on 1", ratio=ratio, at_least=1.8)
    assert ratio >= 1.8


def test_a_worker_is_at_work_soon(target: Target, benchmark: Any) -> None:
    measured = throughput.measure(target, 1)
    timed(benchmark, measured)
    seconds = statistics.median(measured.start_seconds)
    benchmark.extra_info.update(what="seconds to a worker's first verdict", ratio=seconds, at_most=30)
    assert seconds <= STARTED_SECONDS
