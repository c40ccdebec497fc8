"""The correction: found by behaviour, and nothing at all where the release has the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import transformer_engine.pytorch as te
import transformer_engine.pytorch.distributed as te_distributed

from harness.correction import Correction, missing_parts

if TYPE_CHECKING:
    from harness.session import Session


def test_once_corrected_nothing_is_missing(te_session: Session) -> None:
    if te_session.te_mode == "corrected":
        assert missing_parts(te_session.probe, te_session.backend.device) == frozenset()


def test_an_empty_correction_changes_nothing() -> None:
    before = te.checkpoint, te_distributed.checkpoint
    Correction(frozenset()).apply()

    assert (te.checkpoint, te_distributed.checkpoint) == before


def test_a_correction_taken_out_leaves_te_as_it_was(te_session: Session) -> None:
    correction = Correction(frozenset({"bypass without grad"}))
    before = te.checkpoint
    correction.apply()
    assert te.checkpoint is not before
    correction.remove()

    assert te.checkpoint is before
    assert te_session.probe.flags() == te_session.probe.flags()
