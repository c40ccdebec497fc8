from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.database import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _no_shared_finds() -> Iterator[None]:
    """What one test finds is no other's: commands share nothing but where a test names the database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "none")
        yield
