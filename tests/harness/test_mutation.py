"""A mutant is planted in the very functions that TE already holds, and taken out without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import transformer_engine.pytorch.distributed as te_distributed

from harness import case as c
from harness import mutants
from harness.mutation import Planted, _function_object
from harness.session import Session
from harness.te_mode import with_mutant

ONCE = (c.Forward(), c.Backward())
EVAL = c.Case(graph=c.Autocast(c.Region(c.Linear(training=False))), schedule=ONCE)


@contextmanager
def planted(name: str) -> Iterator[None]:
    mutant = Planted(mutants.find(name))
    mutant.plant()
    try:
        yield
    finally:
        mutant.remove()


def test_a_planted_mutant_is_at_work_until_it_is_removed(te_session: Session) -> None:
    assert te_session.judge(EVAL).held
    with planted("named:guard-reverted"):
        assert te_session.judge(EVAL).signature == ("same errors: no snapshot to pop",)
    assert te_session.judge(EVAL).held


@pytest.mark.usefixtures("te_session")
def test_every_mutant_can_be_planted_and_leaves_nothing_behind() -> None:
    for mutant in mutants.mutants().values():
        function = _function_object(mutant)
        code, defaults = function.__code__, function.__defaults__
        with planted(mutant.id):
            assert function.__code__ is not code
        assert (function.__code__, function.__defaults__) == (code, defaults)


def test_who_imported_a_function_by_name_runs_the_mutant_too() -> None:
    delete_all = "pytorch/distributed.py:in_fp8_activation_recompute_phase:delete:0"
    with planted(delete_all):
        from transformer_engine.pytorch.module.base import in_fp8_activation_recompute_phase

        assert in_fp8_activation_recompute_phase() is None
    assert in_fp8_activation_recompute_phase() is False


def test_a_flipped_default_of_a_parameter_takes_effect() -> None:
    function = te_distributed._CheckpointFrame.cache_rng_states
    assert function.__defaults__ == (True,)
    with planted("pytorch/distributed.py:_CheckpointFrame.cache_rng_states:flip:0"):
        assert function.__defaults__ == (False,)


def test_what_a_function_remembers_is_forgotten() -> None:
    known = te_distributed.get_te_classes()
    with planted("pytorch/distributed.py:get_te_classes:delete:7"):
        assert te_distributed.get_te_classes() is None
    assert te_distributed.get_te_classes() == known


def test_a_mode_names_a_mutant_and_the_correction_does_not_mend_it(te_session: Session) -> None:
    session = Session(te_session.backend, with_mutant("named:guard-reverted"))
    try:
        assert session.lacking == te_session.lacking
        assert not session.judge(EVAL).held
    finally:
        session.close()
    assert te_session.judge(EVAL).held
