from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.session import Session


@pytest.fixture(autouse=True)
def _needs_a_release_without_the_fix(te_session: Session) -> None:
    if not te_session.lacking:
        pytest.skip("the installed TE has the fix: tox -e te-2.19 runs these with one that lacks it")
