"""Saved cases stay mended: each is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import corpus

if TYPE_CHECKING:
    from harness.session import Session

FOLDER = Path(__file__).parents[2] / "corpus"
FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_saved_case_holds(te_session: Session, path: Path) -> None:
    saved = corpus.load(path)
    verdict = te_session.judge(saved.case)

    assert verdict.held, f"{saved.why}\n" + "\n".join(str(violation) for violation in verdict.violations)


def test_every_pinned_case_says_why_it_is_kept() -> None:
    assert FILES
    assert all(corpus.load(path).why for path in FILES)
