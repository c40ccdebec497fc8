"""How long it takes to find and shrink the two faults that 2.20 mended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from harness import campaign
from harness import case as c
from harness.session import Session
from strategies.domains import DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.failure import Failure

pytestmark = pytest.mark.benchmark(group="shrinking")

CASES = 20
SECONDS = 20.0


@pytest.fixture(params=["guard", "bypass"])
def reverted(request: pytest.FixtureRequest, te_session: Session) -> Iterator[Session]:
    """Transformer Engine with one part of the fix reverted."""
    session = Session(te_session.backend, f"mutant:named:{request.param}-reverted")
    yield session
    session.close()


def test_an_original_fault_is_found_and_shrunk_soon(reverted: Session, benchmark: Any) -> None:
    """Found in the first twenty cases, and every kind of failure that it shows shrunk."""
    found: list[Failure] = []

    def find_and_shrink() -> None:
        found.extend(
            campaign.run_chunk(
                reverted.judge, DOMAINS["contract"].strategy(), 1, CASES, lambda _case, _verdict: None
            )
        )

    begun = time.monotonic()
    benchmark.pedantic(find_and_shrink, rounds=1)
    seconds = time.monotonic() - begun
    benchmark.extra_info.update(what=f"seconds, {reverted.te_mode}", ratio=seconds, at_most=SECONDS)
    assert min(len(c.modules(failure.case)) for failure in found) == 1
    assert seconds <= SECONDS
