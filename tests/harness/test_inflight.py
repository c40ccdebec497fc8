"""A worker's file names its case at any moment, and never half of one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness import case as c
from harness import inflight
from harness.errors import CannotRunHere, DeviceLost
from harness.inflight import InFlight

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
OTHER = c.Case(graph=c.Autocast(c.Region(c.Linear(bias=False))), schedule=CASE.schedule)
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


def test_announced_cases_are_on_the_disk_once_for_all_before_the_first_is_judged(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(inflight, "_sync", lambda _file: synced.append(file.read_bytes()))
    flights = InFlight(file)
    flights.announce([CASE, LARGER])
    for case in (LARGER, CASE):
        with flights.judging(case):
            flight = inflight.read(file)
            assert flight is not None
            assert flight.case == case
    (written,) = synced
    assert c.encode(CASE) in written
    assert c.encode(LARGER) in written
    # As when shrinking comes upon a case that nobody knew of.
    with flights.judging(OTHER):
        flight = inflight.read(file)
        assert flight is not None
        assert flight.case == OTHER
    assert len(synced) == 2


def test_what_ends_the_process_leaves_its_case_noted_and_an_error_does_not(file: Path) -> None:
    flights = InFlight(file)
    with pytest.raises(DeviceLost), flights.judging(CASE):
        raise DeviceLost("CUDA error")
    flight = inflight.read(file)
    assert flight is not None
    assert flight.case == CASE
    with pytest.raises(ValueError, match="planted"), flights.judging(LARGER):
        raise ValueError("planted")
    assert inflight.read(file) is None


@pytest.mark.parametrize("kept", [0, 1, 10, 40, 70])
def test_what_was_cut_off_is_no_case(file: Path, kept: int) -> None:
    InFlight(file).begin(CASE)
    file.write_bytes(file.read_bytes()[:kept])
    assert inflight.read(file) is None


def test_what_was_half_written_over_is_no_case(file: Path) -> None:
    InFlight(file).begin(CASE)
    written = file.read_bytes()
    file.write_bytes(written[:70] + b"?" + written[71:])
    assert inflight.read(file) is None


def test_a_full_disk_is_said_in_a_line() -> None:
    flights = InFlight(Path("/dev/full"))
    with pytest.raises(CannotRunHere, match="no room is left"):
        flights.begin(CASE)
