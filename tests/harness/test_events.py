"""What a run records is read back whole, whoever wrote it, and however its process ended."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

import pytest

from harness import case as c
from harness import corpus, events
from harness.corpus import SavedCase, Seen
from harness.errors import CannotRunHere, InvalidInput
from harness.events import FORMAT, Counted, Ended, EventLog, Started
from harness.tally import Tally
from harness.violations import Difference, Violation
from tests.harness.commands import CASE

STARTED = Started(format=FORMAT, time=1.0, run="fuzz", domains=("contract",), seed=7, workers=2)
ENDED = Ended(time=3.0, interrupted=True)


def test_events_of_one_process_are_read_in_their_order(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "night" / "events")
    counted = events.counted("contract", Tally(cases=3, features=Counter(reentrant=2)), since=1.5)
    for event in (STARTED, counted, ENDED):
        log.add(event)
    assert events.load(tmp_path) == [[STARTED, counted, ENDED]]
    assert isinstance(counted, Counted)
    assert (counted.cases, counted.features) == (3, {"reentrant": 2})


def test_a_failing_case_is_recorded_as_it_is_saved(tmp_path: Path) -> None:
    difference = Difference(float("inf"), float("inf"), 1, 2)
    seen = Seen(
        violations=(Violation(oracle="outputs", message="\n`<b>|", iteration=0, difference=difference),)
    )
    saved = SavedCase(case=CASE, why="fails: outputs", seen=seen)
    EventLog(tmp_path).add(events.failed("contract", "outputs", saved, tmp_path / "x.json", "replay it"))
    ((event,),) = events.load(tmp_path)
    assert isinstance(event, events.Failed)
    assert event.case() == saved
    assert not event.crash
    assert b"\n" not in bytes(event.saved)
    assert corpus.decode(bytes(event.saved)) == saved


def write_many(folder: Path) -> None:
    log = EventLog(folder)
    for _ in range(50):
        log.add(STARTED)


def test_processes_that_write_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_many, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert events.load(tmp_path) == [[STARTED] * 50] * 3


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    EventLog(tmp_path).add(STARTED)
    (file,) = tmp_path.iterdir()
    with file.open("ab") as opened:
        opened.write(b'{"type":"ended","ti')
    assert events.load(tmp_path) == [[STARTED]]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"type":"party"}', "not an event"),
        (b'{"type":"ended","time":"noon"}', "not an event"),
        (b"[1]", "not an event"),
        (b'{"type":"started","format":99,"time":1,"run":"fuzz","seed":1,"workers":1}', "newer te-harness"),
    ],
)
def test_what_is_no_event_is_bad_input(tmp_path: Path, line: bytes, complaint: str) -> None:
    (tmp_path / "x.events.jsonl").write_bytes(line + b"\n")
    with pytest.raises(InvalidInput, match=complaint):
        events.load(tmp_path)


def test_where_nothing_was_recorded_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no run has recorded events"):
        events.load(tmp_path)
    with pytest.raises(InvalidInput, match="no such folder"):
        events.load(tmp_path / "nowhere")


def test_a_full_disk_is_said_in_a_line(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log._path = Path("/dev/full")
    with pytest.raises(CannotRunHere, match="make room"):
        log.add(STARTED)


def test_what_a_stranger_recorded_as_a_case_is_checked(tmp_path: Path) -> None:
    bad = b'{"type":"failed","domain":"contract","kind":"x","saved":{"graph":{"type":"Bomb"}}}\n'
    (tmp_path / "x.events.jsonl").write_bytes(bad)
    ((event,),) = events.load(tmp_path)
    assert isinstance(event, events.Failed)
    with pytest.raises(InvalidInput):
        event.case()
    assert c.encode(CASE)
