"""The parts of the fix, each reverted: how soon the contract kills them, over twenty seeds.

Run by ``tox -e sensitivity``: it takes minutes.
"""

from __future__ import annotations

import statistics

import pytest

from harness import case as c
from harness import record
from harness.court import Cases, Court
from harness.session import Session
from harness.trial import Trial
from strategies.domains import DOMAINS

SEEDS = range(20)
_CASES = 100
_CAMPAIGN = 500


def trials(session: Session, name: str, cases: int) -> list[Trial]:
    session.close()
    strategy = DOMAINS["contract"].strategy()
    found = []
    for seed in SEEDS:
        drawn = Cases(strategy, record.draw(strategy, cases, seed), seed)
        found.append(Court(session.backend, drawn, lambda _number: None).try_mutant(name, drawn.numbers))
    return found


def sizes(trial: Trial) -> tuple[int, int]:
    """How many modules and iterations the shrunk case has; an evaluation beside them is none."""
    assert trial.smallest is not None
    iterations = sum(isinstance(step, c.Forward) for step in trial.smallest.schedule)
    return len(c.modules(trial.smallest)), iterations


@pytest.mark.parametrize("name", ["named:guard-reverted", "named:bypass-reverted"])
def test_each_break_of_2_19_is_killed_within_20_cases_and_shrunk_to_one_module_and_one_iteration(
    name: str, te_session: Session
) -> None:
    found = trials(te_session, name, _CASES)
    numbers = [trial.case for trial in found if trial.case is not None]
    print(name, sorted(numbers), [sizes(trial) for trial in found])
    assert len(numbers) == len(SEEDS)
    assert statistics.median(numbers) <= 20
    assert {sizes(trial) for trial in found} == {(1, 1)}


@pytest.mark.parametrize(
    "name", ["named:bypass-context-lost", "named:eligibility-reverted", "named:autocast-inside-reverted"]
)
def test_each_other_part_reverted_is_killed_by_most_campaigns(name: str, te_session: Session) -> None:
    found = trials(te_session, name, _CAMPAIGN)
    numbers = [trial.case for trial in found if trial.case is not None]
    print(name, sorted(numbers))
    assert len(numbers) >= 18
