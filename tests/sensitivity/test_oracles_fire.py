"""Every oracle fires, alone, on a fault that no other oracle can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import case as c
from harness.session import Session
from harness.violations import ORACLES
from tests.sensitivity import planted

if TYPE_CHECKING:
    from harness.caller import Checkpointer
    from harness.violations import OracleName

GRAPH = c.Autocast(c.Region(c.Linear()))
ONE = c.Case(graph=GRAPH, schedule=(c.Forward(), c.Backward()))
THREE = c.Case(graph=GRAPH, schedule=(c.Forward(), c.Backward()) * 3)
# Without FP8 nothing is pushed: then only the count shows that the recompute was left out.
HIGH_PRECISION = c.Case(graph=GRAPH, schedule=ONE.schedule, recipe=c.HighPrecision())

PLANTED: dict[OracleName, tuple[c.Case, Checkpointer]] = {
    "outputs": (ONE, planted.changes_outputs),
    "input gradients": (ONE, planted.changes_input_gradients),
    "parameter gradients": (ONE, planted.changes_parameter_gradients),
    "FP8 state": (ONE, planted.changes_fp8_state),
    "FIFO drained": (ONE, planted.pushes_once_more),
    "pairing": (ONE, planted.swaps_snapshot_for_an_equal_one),
    "recompute count": (HIGH_PRECISION, planted.does_not_recompute),
    "global state": (ONE, planted.advances_the_rng),
    "same errors": (ONE, planted.raises),
    "steady memory": (THREE, planted.hoards),
}


@pytest.mark.parametrize("oracle", ORACLES)
def test_oracle_alone_catches_its_planted_fault(te_session: Session, oracle: OracleName) -> None:
    case, checkpointer = PLANTED[oracle]
    verdict = Session(te_session.backend, te_session.te_mode, checkpointer).judge(case)

    assert {violation.oracle for violation in verdict.violations} == {oracle}
    assert not any(violation.noise for violation in verdict.violations)


@pytest.mark.parametrize("oracle", ORACLES)
def test_no_oracle_fires_without_the_fault(te_session: Session, oracle: OracleName) -> None:
    case, _ = PLANTED[oracle]
    verdict = te_session.judge(case)

    assert verdict.held, verdict.violations
    assert oracle in verdict.evaluated
