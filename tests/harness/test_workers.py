"""A campaign's outcome does not depend on its workers, and no end of a worker is a silent one."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness import backends, campaign, corpus, workers
from harness.errors import HarnessFault, InvalidInput
from harness.features import features
from harness.plan import Outcome, Plan
from harness.target import Target

on_a_gpu = pytest.mark.skipif(backends.active().name != "cuda", reason="needs a kernel that can assert")


def plan(checkpointer: str | None = None, **options: Any) -> Plan:
    if checkpointer is not None and ":" not in checkpointer:
        checkpointer = f"tests.harness.planted:{checkpointer}"
    target = Target(backend=backends.active().name, checkpointer=checkpointer)
    return Plan(target=target, **{"seed": 7, "cases": 4, **options})


def facts(outcome: Outcome) -> tuple[object, ...]:
    tally = outcome.tally
    return tally.cases, tally.features, tally.oracles, tally.violations, outcome.found, outcome.fault


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes stay as they were drawn: how they are made smaller is shown elsewhere, and takes long."""
    monkeypatch.setattr(workers, "smallest_of_each_kind", lambda *_: ())


def test_two_workers_come_to_the_outcome_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "CHUNK", 3)
    alone = workers.run(plan("refuses", cases=7))
    shared = workers.run(plan("refuses", cases=7, workers=2))
    assert facts(alone) == facts(shared)
    assert alone.tally.cases == 7
    assert list(alone.found) == ["same errors: ValueError"]


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize(
    ("checkpointer", "how"),
    [
        ("leaves", "exit code 0"),
        ("segfaults", "SIGSEGV"),
        ("hangs", "not at its end after 2 seconds"),
        ("loses_the_device", "CUDA error: planted"),
        pytest.param("asserts_on_the_device", "CUDA error: device-side assert triggered", marks=on_a_gpu),
    ],
)
def test_a_case_that_ends_its_process_or_hangs_is_named(checkpointer: str, how: str) -> None:
    outcome = workers.run(plan(checkpointer, cases=1, workers=1, case_timeout=2.0))
    (saved,) = outcome.crashed.values()
    assert saved.why == f"crash: {how}"
    assert saved.found == corpus.Found(seed=7, domain="contract")
    assert (outcome.tally.cases, outcome.fault) == (0, None)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("unshrunk")
def test_a_worker_that_is_killed_is_replaced_and_all_other_cases_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = workers.run(plan("is_killed_once", cases=12, workers=1))
    (saved,) = outcome.crashed.values()
    assert saved.why == "crash: SIGKILL, or memory ran out"
    whole = workers.run(plan(cases=12))
    assert outcome.tally.cases == whole.tally.cases - 1
    assert outcome.tally.features + Counter(features(saved.case)) == whole.tally.features
    assert outcome.fault is None


@pytest.mark.usefixtures("unshrunk")
def test_too_many_crashes_end_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MOST_CRASHES", 1)
    outcome = workers.run(plan("dies", cases=3, workers=1))
    assert len(outcome.crashed) == 1
    assert outcome.tally.cases == 0


def test_a_worker_that_dies_without_a_case_is_a_fault_of_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.py").write_text("import os\nos._exit(17)\n")
    monkeypatch.chdir(tmp_path)
    outcome = workers.run(plan("gone:checkpoint", workers=2))
    assert isinstance(outcome.fault, HarnessFault)
    assert "a worker died with exit code 17" in str(outcome.fault)
    assert multiprocessing.active_children() == []


def test_a_worker_that_does_not_become_ready_is_a_fault_of_the_harness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "LONGEST_START_SECONDS", 0.2)
    outcome = workers.run(plan(workers=1))
    assert isinstance(outcome.fault, HarnessFault)
    assert "a worker was not ready" in str(outcome.fault)
    assert multiprocessing.active_children() == []


def test_a_fault_of_the_harness_comes_with_its_case() -> None:
    outcome = workers.run(plan("breaks"))
    assert isinstance(outcome.fault, HarnessFault)
    assert outcome.faulty_case is not None
    assert str(outcome.fault) == f"case {outcome.faulty_case.fingerprint}: HarnessFault: planted"


def test_a_checkpointer_that_does_not_exist_is_bad_input() -> None:
    assert isinstance(workers.run(plan("nowhere:checkpoint")).fault, InvalidInput)


@pytest.mark.parametrize("processes", [0, 2])
def test_an_interruption_keeps_what_was_done(processes: int) -> None:
    def interrupt(outcome: Outcome) -> None:
        if outcome.tally.cases:
            raise KeyboardInterrupt

    outcome = workers.run(plan("no_recompute", cases=100, workers=processes), interrupt)
    assert outcome.interrupted
    assert 0 < outcome.tally.cases < 100
    assert outcome.found
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_job_or_a_terminal_interrupts_as_the_keyboard_does(number: signal.Signals) -> None:
    def end(outcome: Outcome) -> None:
        if outcome.tally.cases:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    outcome = workers.run(plan("no_recompute", cases=100), end)
    assert outcome.interrupted
    assert outcome.found
    assert signal.getsignal(number) == before


def test_time_ends_the_drawing() -> None:
    outcome = workers.run(plan(cases=10**9, seconds=0.3))
    assert 0 < outcome.tally.cases < 1000
    assert outcome.fault is None
    assert not outcome.interrupted


def test_it_is_said_where_a_campaign_ran() -> None:
    outcome = workers.run(plan(cases=1))
    assert outcome.reason == backends.active().reason
    assert outcome.where["te_mode"] == "corrected"
    assert outcome.where["checkpointer"] == "te.checkpoint"
    assert outcome.where["transformer_engine"] == backends.te_version()


def test_no_worker_is_started_for_nothing() -> None:
    assert workers.useful_workers(16, plan(cases=4)) == 1
    assert workers.useful_workers(16, plan(cases=10 * campaign.CHUNK)) == 10
    assert workers.useful_workers(16, plan(cases=10 * campaign.CHUNK, shard=(2, 5))) == 2
    assert workers.useful_workers(2, plan(cases=10**9)) == 2
