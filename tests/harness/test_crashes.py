"""A case that ends its process is judged in another one, and made smaller there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from harness import backends, corpus
from harness import case as c
from harness.crashes import crash, shrunk, smallest_of_each_kind
from harness.errors import CannotRunHere, HarnessFault, InvalidInput
from harness.outside import Ended, Outside
from harness.target import Target
from harness.verdict import Verdict

SMALL = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
HELD = c.Case(graph=c.Autocast(c.Region(c.Linear(), use_reentrant=False)), schedule=SMALL.schedule)
LARGE = c.Case(
    graph=c.Chain((HELD.graph, c.Autocast(c.Region(c.Linear(bias=False))))),
    schedule=(*SMALL.schedule, c.OptimizerStep()),
)
FOUND = corpus.Found(seed=1, domain="contract")


def outside(checkpointer: str, case_timeout: float = 60.0) -> Outside:
    target = Target(backend=backends.active().name, checkpointer=f"tests.harness.planted:{checkpointer}")
    return Outside(target, case_timeout)


@pytest.fixture(scope="module")
def aborting() -> Iterator[Outside]:
    with outside("aborts_in_reentrant") as judge:
        yield judge
    assert multiprocessing.active_children() == []


@pytest.fixture
def refusing() -> Iterator[Outside]:
    with outside("release_lacks_reentrant") as judge:
        yield judge


def test_a_case_that_ends_its_process_says_how_and_the_next_one_is_judged(aborting: Outside) -> None:
    assert aborting.judge(SMALL) == Ended("SIGABRT")
    verdict = aborting.judge(HELD)
    assert isinstance(verdict, Verdict)
    assert verdict.held


def test_a_crash_is_made_smaller_in_fresh_processes(aborting: Outside) -> None:
    smallest = shrunk(crash(LARGE, "SIGABRT", {}, FOUND), aborting)
    assert smallest is not None
    assert len(c.modules(smallest.case)) == 1
    assert len(smallest.case.schedule) <= 2
    assert smallest.why == f"crash: SIGABRT (made smaller from {LARGE.fingerprint})"
    assert aborting.judge(smallest.case) == Ended("SIGABRT")


def test_a_crash_that_does_not_come_again_stays_as_it_was(aborting: Outside) -> None:
    saved = crash(HELD, "SIGKILL, or memory ran out", {}, FOUND)
    assert shrunk(saved, aborting) is None
    target = Target(backend=backends.active().name)
    (smallest,) = smallest_of_each_kind([saved], target, 60.0)
    assert smallest.case == HELD
    assert smallest.why.endswith("(not when judged again, alone)")


def test_time_ends_the_search_for_a_smaller_one(aborting: Outside) -> None:
    clock = iter([0.0, 1.0, *[1000.0] * 1000])
    saved = crash(LARGE, "SIGABRT", {}, FOUND)
    assert shrunk(saved, aborting, lambda: next(clock)) == saved


def test_a_case_that_the_harness_refuses_is_not_taken_for_a_crash_of_the_next(refusing: Outside) -> None:
    for _ in range(2):
        with pytest.raises(CannotRunHere):
            refusing.judge(LARGE)
        verdict = refusing.judge(HELD)
        assert isinstance(verdict, Verdict)
        assert verdict.held


def test_a_case_that_breaks_the_device_ends_its_process_and_the_next_one_gets_a_fresh_one() -> None:
    with outside("loses_the_device") as judge:
        assert judge.judge(SMALL) == Ended("CUDA error: planted")
        assert judge.judge(LARGE) == Ended("CUDA error: planted")
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(backends.active().name != "cuda", reason="needs a kernel that can assert")
def test_a_failed_assertion_of_a_kernel_is_made_smaller_in_fresh_processes() -> None:
    how = "CUDA error: device-side assert triggered"
    with outside("asserts_on_the_device_in_reentrant") as judge:
        assert judge.judge(LARGE) == Ended(how)
        verdict = judge.judge(HELD)
        assert isinstance(verdict, Verdict)
        assert verdict.held
        smallest = shrunk(crash(LARGE, how, {}, FOUND), judge)
    assert smallest is not None
    assert len(c.modules(smallest.case)) == 1
    assert c.regions(smallest.case)[0].use_reentrant


def test_a_case_that_hangs_is_given_up() -> None:
    with outside("hangs", case_timeout=1.5) as judge:
        assert judge.judge(SMALL) == Ended("not at its end after 1.5 seconds")
    assert multiprocessing.active_children() == []


def test_a_process_that_does_not_become_ready_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.outside.LONGEST_START_SECONDS", 0.2)
    with outside("checkpoint") as judge, pytest.raises(HarnessFault, match="a worker was not ready"):
        judge.judge(SMALL)
    assert multiprocessing.active_children() == []


def test_what_cannot_begin_is_said_as_anywhere() -> None:
    with outside("nothing_of_that_name") as judge, pytest.raises(InvalidInput):
        judge.judge(SMALL)
