"""A worker's file names its case at any moment, and never half of one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness import case as c
from harness import inflight
from harness.errors import CannotRunHere
from harness.inflight import InFlight

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
LARGER = c.Case(graph=c.Chain((CASE.graph, CASE.graph)), schedule=CASE.schedule)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "1.case"


def test_a_case_is_in_flight_from_its_begin_to_its_end(file: Path) -> None:
    assert inflight.read(file) is None
    flights = InFlight(file)
    assert inflight.read(file) is None
    before = time.monotonic()
    for case in (LARGER, CASE):
        flights.begin(case)
        flight = inflight.read(file)
        assert flight is not None
        assert flight.case == case
        assert before <= flight.since <= time.monotonic()
    flights.end()
    assert inflight.read(file) is None


@pytest.mark.parametrize("kept", [0, 1, 10, 40])
def test_what_was_cut_off_is_no_case(file: Path, kept: int) -> None:
    InFlight(file).begin(CASE)
    file.write_bytes(file.read_bytes()[:kept])
    assert inflight.read(file) is None


def test_what_was_half_written_over_is_no_case(file: Path) -> None:
    InFlight(file).begin(CASE)
    written = file.read_bytes()
    file.write_bytes(written[:30] + b"?" + written[31:])
    assert inflight.read(file) is None


def test_a_full_disk_is_said_in_a_line() -> None:
    flights = InFlight(Path("/dev/full"))
    with pytest.raises(CannotRunHere, match="no room is left"):
        flights.begin(CASE)
