"""Trials of mutants: what is killed, what is not, and that no case is left out that would have killed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness import case as c
from harness import mutants, reach, record, session
from harness.backends import te_version
from harness.court import Cases, Court, objectors
from harness.errors import HarnessFault
from harness.execute import run_direct
from harness.mutation import Planted
from harness.session import Session
from harness.trace import Trace
from harness.trial import Trial
from strategies.domains import DOMAINS

OF_RELEASE = "2.20.2"
NUMBERS = range(1, 13)
GUARD = "named:guard-reverted"
HARMLESS = "pytorch/distributed.py:checkpoint:delete:24"
ELSEWHERE = "pytorch/distributed.py:checkpoint:delete:28"

pytestmark = pytest.mark.emulation


@pytest.fixture(scope="module")
def cases() -> Cases:
    strategy = DOMAINS["contract"].strategy()
    return Cases(strategy, record.draw(strategy, len(NUMBERS), seed=0), seed=0)


@pytest.fixture
def court(te_session: Session, cases: Cases) -> Court:
    if te_version() != OF_RELEASE:
        pytest.skip(f"the mutants are those of {OF_RELEASE}: in other releases their ids name other lines")
    return Court(te_session.backend, cases, lambda _number: None)


def test_a_killed_mutant_is_told_with_its_first_case_and_a_smaller_one(court: Court) -> None:
    trial = court.try_mutant(GUARD, NUMBERS)
    assert trial.outcome == "killed"
    assert trial.by == ("same errors",)
    assert trial.case is not None
    assert trial.smallest is not None
    assert not any(court.objections(GUARD, [number]) for number in range(1, trial.case))


def test_objections_end_with_the_first_case_that_a_second_oracle_objects_to(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {1: (), 2: ("outputs",), 3: ("outputs", "FP8 state"), 4: ("outputs",)}
    monkeypatch.setattr(court, "_objectors", lambda _session, number: said[number])
    assert court.objections(HARMLESS, [1, 2, 3, 4]) == {"outputs": 2, "FP8 state": 1}


def test_a_mutant_that_changes_nothing_survives(court: Court) -> None:
    trial = court.try_mutant(HARMLESS, NUMBERS)
    assert (trial.outcome, trial.changes_direct) == ("survived", False)


def test_a_mutant_that_changes_both_runs_alike_survives_and_is_told_so(court: Court) -> None:
    never_updated = "pytorch/quantization.py:FP8GlobalStateManager.autocast_exit:delete:3"
    trial = court.try_mutant(never_updated, NUMBERS)
    assert (trial.outcome, trial.changes_direct) == ("survived", True)


def test_direct_runs_without_a_mutants_lines_are_kept_for_all_mutants(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart, ran = court.try_mutant(HARMLESS, NUMBERS), list[str]()

    def counted(case: c.Case, *given: Any) -> Trace:
        ran.append(case.fingerprint)
        return run_direct(case, *given)

    monkeypatch.setattr(session, "run_direct", counted)

    assert _alike(court.try_mutant(HARMLESS, NUMBERS, frozenset()), apart)
    assert len(ran) == len(NUMBERS)
    ran.clear()
    assert _alike(court.try_mutant(HARMLESS, NUMBERS, frozenset([3])), apart)
    # Case 3 in the trial, and to tell whether its direct run changes: what it gives without is known by now.
    assert len(ran) == 2


def _alike(one: Trial, other: Trial) -> bool:
    return msgspec.structs.replace(one, seconds=0) == msgspec.structs.replace(other, seconds=0)


def test_a_mutant_whose_lines_no_case_runs_is_not_tried(court: Court) -> None:
    assert court.try_mutant(ELSEWHERE, []).outcome == "unreached"


def test_what_an_earlier_mutant_has_left_behind_is_noticed(court: Court) -> None:
    left_behind = Planted(mutants.find(GUARD))
    assert not any(court.is_tainted(number) for number in NUMBERS)
    left_behind.plant()
    try:
        assert any(court.is_tainted(number) for number in NUMBERS)
    finally:
        left_behind.remove()


def test_a_case_that_does_not_hold_without_a_mutant_is_a_fault(court: Court) -> None:
    trial = court.try_mutant(GUARD, NUMBERS)
    assert trial.case is not None
    with _planted(GUARD), pytest.raises(HarnessFault, match="does not hold without any mutant"):
        court.require_health(trial.case)


class _planted(Planted):  # noqa: N801 - used as a context
    def __init__(self, name: str) -> None:
        super().__init__(mutants.find(name))

    def __enter__(self) -> None:
        self.plant()

    def __exit__(self, *_exception: object) -> None:
        self.remove()


@pytest.mark.parametrize(
    "pattern",
    [
        "pytorch/distributed.py:get_te_classes:*",
        "pytorch/distributed.py:checkpoint:negate:*",
        "pytorch/distributed.py:_CheckpointFunction.forward:negate:*",
    ],
)
def test_a_case_that_does_not_run_a_mutants_lines_never_kills_it(
    pattern: str, court: Court, cases: Cases, te_session: Session
) -> None:
    """Without this, skipping cases that do not reach a mutant would not be sound."""
    measured = reach.measure(NUMBERS[:6], court.require_health)
    killed = 0
    for mutant in mutants.matching((pattern,)):
        reached = set(reach.reaching(measured, mutant, NUMBERS[:6]))
        with _planted(mutant.id):
            for number in NUMBERS[:6]:
                try:
                    kills = bool(objectors(te_session.judge(cases[number])))
                except Exception:
                    kills = True
                killed += kills
                assert number in reached or not kills, f"{mutant.id} is killed by case {number}"
    assert killed
