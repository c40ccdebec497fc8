"""A sensitivity campaign loses no mutant: to a crash, a hang, a tainted process or an interruption."""

from __future__ import annotations

import itertools
import time

import pytest

from harness import crew, sensitivity
from harness.errors import HarnessFault
from harness.sensitivity import Outcome, Plan
from harness.trial import Finished, Trial
from tests.harness import staged_workers

FILE = "pytorch/distributed.py:"
PLAIN = FILE + "in_fp8_activation_recompute_phase:delete:0"
CRASHES = FILE + "activation_recompute_forward.__enter__:delete:0"
HANGS = FILE + "use_reentrant_activation_recompute:delete:0"
KILLED = FILE + "get_activation_recompute_contexts:delete:0"
TAINTS = FILE + "activation_recompute_forward.__exit__:delete:1"
BREAKS = FILE + "has_te_modules:delete:0"


def run(*names: str, workers: int = 1, done: tuple[Finished, ...] = ()) -> tuple[Outcome, list[Finished]]:
    kept: list[Finished] = []
    plan = Plan(mutants=names, cases=60, workers=workers)
    return sensitivity.run(plan, done, kept.append, work=staged_workers.work), kept


def test_every_mutant_is_tried_and_each_is_kept_as_it_is_finished() -> None:
    outcome, kept = run(PLAIN, workers=2)
    assert outcome.trials == {PLAIN: Trial(mutant=PLAIN, outcome="killed", by=("outputs",), case=1)}
    assert outcome.sole_killer() == {"outputs": PLAIN}
    assert [finished.mutant for finished in kept] == [PLAIN, PLAIN]


def test_a_mutant_that_takes_its_process_down_is_killed_by_that_and_the_rest_is_tried() -> None:
    outcome, _ = run(CRASHES, PLAIN)
    assert {name: trial.by for name, trial in outcome.trials.items()} == {
        CRASHES: ("crash",),
        PLAIN: ("outputs",),
    }
    assert outcome.trials[CRASHES].case == 1


def test_a_mutant_that_does_not_end_is_killed_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "_LONGEST_CASE_SECONDS", 1.0)
    outcome, _ = run(HANGS, PLAIN)
    assert {name: trial.by for name, trial in outcome.trials.items()} == {
        HANGS: ("hang",),
        PLAIN: ("outputs",),
    }


def test_a_worker_killed_from_outside_is_no_kill_of_its_mutants() -> None:
    outcome, kept = run(KILLED, PLAIN)
    assert "signal 9" in str(outcome.fault)
    assert KILLED not in outcome.trials
    assert KILLED not in {finished.mutant for finished in kept}


def test_a_campaign_that_was_stopped_for_a_while_takes_no_worker_for_a_hanging_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(step=0.01)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    workers = crew.Crew(staged_workers.work, staged_workers.Deaf())
    workers.start(1)
    try:
        workers.listen()
        clock = itertools.count(start=100.0, step=0.01)
        workers.listen()
        assert workers.silent_for(60.0) == []
        clock = itertools.count(start=104.0, step=0.01)
        assert workers.silent_for(3.0) != [], "a pause that is no stop counts"
    finally:
        workers.end()


def test_what_a_tainted_process_saw_is_believed_only_of_a_fresh_one() -> None:
    outcome, _ = run(PLAIN, TAINTS)
    assert outcome.trials[TAINTS].outcome == "killed"


def test_what_was_finished_is_not_tried_again() -> None:
    earlier = Trial(mutant=PLAIN, outcome="survived", reaching=7)
    outcome, kept = run(PLAIN, CRASHES, done=(earlier,))
    assert outcome.trials[PLAIN] == earlier
    assert PLAIN not in {finished.mutant for finished in kept}


def test_a_fault_of_the_harness_ends_the_campaign_and_is_none_of_the_mutants() -> None:
    outcome, _ = run(BREAKS, PLAIN)
    assert isinstance(outcome.fault, HarnessFault)
    assert str(outcome.fault) == "planted"
    assert BREAKS not in outcome.trials
