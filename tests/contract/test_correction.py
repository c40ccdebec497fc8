"""The correction: found by behaviour, and nothing at all where the release has the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import transformer_engine.pytorch as te
import transformer_engine.pytorch.distributed as te_distributed
from transformer_engine.pytorch.module.base import TransformerEngineBaseModule

from harness import backends
from harness.correction import Correction, missing_parts

if TYPE_CHECKING:
    from harness.session import Session


def test_once_corrected_nothing_is_missing(te_session: Session) -> None:
    if te_session.te_mode == "installed":
        pytest.skip("TE is taken as it is installed")
    assert missing_parts(te_session.probe, te_session.backend.device) == frozenset()


def test_a_release_with_the_fix_lacks_nothing_and_is_left_alone(te_session: Session) -> None:
    release = tuple(int(part) for part in backends.te_version().split(".")[:2])
    if release < (2, 20):
        pytest.skip("the installed TE is older than the fix")
    assert te_session.lacking == frozenset()
    assert te_session.correction.parts == frozenset()
    assert te.checkpoint.__module__ == "transformer_engine.pytorch.distributed"
    assert not hasattr(te.checkpoint, "__wrapped__") or te.checkpoint is te_distributed.checkpoint


def functions() -> tuple[object, ...]:
    """What the correction may replace."""
    return te.checkpoint, te_distributed.checkpoint, TransformerEngineBaseModule.prepare_forward


def test_an_empty_correction_changes_nothing() -> None:
    before = functions()
    Correction(frozenset()).apply()

    assert functions() == before


def test_a_correction_taken_out_leaves_te_as_it_was() -> None:
    correction = Correction(frozenset({"bypass without grad", "stash in eval mode"}))
    before = functions()
    correction.apply()
    assert all(now is not then for now, then in zip(functions(), before, strict=True))
    correction.remove()

    assert functions() == before
