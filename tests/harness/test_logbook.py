"""What a process of pytest notes of itself, for when it can say nothing any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import logbook
from harness.corpus import Found
from harness.errors import DeviceLost
from harness.inflight import InFlight
from harness.logbook import Logbook
from tests.harness.commands import CASE

if TYPE_CHECKING:
    from pathlib import Path

FOUND = Found(seed=3, domain="contract")


def test_a_process_that_has_ended_is_judging_nothing(tmp_path: Path) -> None:
    InFlight(tmp_path / "gw0.case").begin(CASE)
    assert [name for name, _ in logbook.flights(tmp_path)] == ["gw0"]
    # Another process may have its number soon, and is not to be ended for it.
    logbook.close(tmp_path, "gw0")
    assert list(logbook.flights(tmp_path)) == []


def drawn_in(folder: Path) -> Found | None:
    InFlight(folder / "gw0.case").begin(CASE)
    saved = logbook.last_case(folder, "gw0", "SIGKILL")
    assert saved is not None
    return saved.found


def test_what_a_case_was_drawn_in_is_over_with_an_error_and_not_with_the_process(tmp_path: Path) -> None:
    book = Logbook(tmp_path, "gw0")
    with pytest.raises(DeviceLost), book.drawing(FOUND):
        raise DeviceLost("CUDA error: planted")
    assert drawn_in(tmp_path) == FOUND
    with pytest.raises(ValueError, match="planted"), book.drawing(FOUND):
        raise ValueError("planted")
    assert drawn_in(tmp_path) is None
