"""Events: what each process writes, line by line, and what is read again, of files from anyone."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness import case as c
from harness import corpus, events
from harness.errors import CannotRunHere, InvalidInput
from harness.events import Counted, Ended, EventLog, Started, Where, failed
from harness.violations import Difference, Violation
from tests.harness.commands import CASE

SAVED = corpus.SavedCase(
    case=CASE,
    why="fails: outputs",
    seen=corpus.Seen(
        violations=(
            Violation(
                oracle="outputs",
                message="other numbers",
                iteration=0,
                difference=Difference(float("inf"), float("inf"), 1, 2),
            ),
        )
    ),
    where={"backend": "cpu"},
    found=corpus.Found(seed=1, domain="contract"),
)
ABSURD = msgspec.structs.replace(CASE, schedule=(c.Backward(),))
ALL: list[events.Event] = [
    Started(time=1.5, run="fuzz", domains=("contract",), seed=1, cases=5, workers=2),
    Where(where={"backend": "cpu"}, reason="asked for"),
    Counted(domain="contract", since=2.0, time=3.0, cases=3, features={"chain": 2}),
    failed("contract", "outputs", SAVED, Path("corpus/a.json"), "te-harness replay corpus/a.json"),
    Ended(time=4.0, interrupted=True, fault="gone", fault_code=125),
]


def read(folder: Path) -> list[events.Event]:
    return [event for log in events.load(folder) for event in log]


def encoded(event: events.Event) -> bytes:
    return msgspec.json.encode(event)


def line(number: int = 0, **changes: object) -> bytes:
    fields = {**json.loads(encoded(ALL[number])), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def write(folder: Path, *lines: bytes, name: str = "a.events.jsonl") -> Path:
    (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for event in ALL:
        log.add(event)
    assert read(tmp_path) == ALL


def test_a_case_is_read_as_it_was_saved_infinities_and_all(tmp_path: Path) -> None:
    EventLog(tmp_path).add(ALL[3])
    (event,) = read(tmp_path)
    assert isinstance(event, events.Failed)
    assert event.case() == SAVED


def test_each_line_says_its_format() -> None:
    assert {json.loads(encoded(event))["format"] for event in ALL} == {1}


def test_a_line_is_with_the_system_as_soon_as_it_is_added(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "new" / "folder")
    log.add(ALL[0])
    assert read(tmp_path / "new" / "folder") == ALL[:1]
    log.add(ALL[1])
    assert read(tmp_path / "new" / "folder") == ALL[:2]


def test_each_log_has_a_file_of_its_own(tmp_path: Path) -> None:
    for event in ALL[:3]:
        EventLog(tmp_path).add(event)
    assert sorted(len(log) for log in events.load(tmp_path)) == [1, 1, 1]
    assert all(f"-{os.getpid()}-" in path.name for path in tmp_path.iterdir())


def write_many(folder: Path) -> None:
    log = EventLog(folder)
    for _ in range(50):
        log.add(ALL[0])


def test_processes_that_write_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_many, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert list(events.load(tmp_path)) == [[ALL[0]] * 50] * 3


def test_the_folders_of_several_runs_may_lie_in_one(tmp_path: Path) -> None:
    for name in ("cpu", "gpu"):
        EventLog(tmp_path / name).add(ALL[0])
    assert read(tmp_path) == [ALL[0], ALL[0]]


def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    EventLog(tmp_path).add(ALL[0])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole + whole[:length])
        assert read(tmp_path) == ALL[:1]


def test_other_files_of_the_folder_are_passed_over(tmp_path: Path) -> None:
    EventLog(tmp_path).add(ALL[0])
    (tmp_path / "junit.xml").write_text("<testsuites/>")
    (tmp_path / "timelines").mkdir()
    assert read(tmp_path) == ALL[:1]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (b"", "not an event"),
        (b"\xff", "not an event"),
        (b"[1]", "not an event"),
        (b"[" * 100_000, "not an event"),
        (line(type="wished"), "Invalid value 'wished'"),
        (line(format="1"), "Expected `int`"),
        (line(format=...), "missing required field `format`"),
        (line(format=2, type="wished"), "format 2 were written by a newer te-harness; use that one."),
        (line(time=1e300), "< 253402300800"),
        (line(time=-1), ">= 0"),
        (line(1, where={"backend": 1}), "Expected `str`"),
        (line(2, features={"chain": "many"}), "Expected `int`"),
        (line(3, saved={"case": {}}), "saved cases of format 1"),
        (line(3, saved=...), "missing required field `saved`"),
        (line(3, saved=None), "not a usable"),
        (line(3, saved=json.loads(c.encode(ABSURD))), "backward"),
    ],
)
def test_what_is_no_event_is_told_in_one_line(tmp_path: Path, bad: bytes, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(write(tmp_path, encoded(ALL[0]), bad))
    assert "a.events.jsonl, line 2: " in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_fields_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    assert read(write(tmp_path, line(mood="bright"))) == ALL[:1]


@pytest.mark.parametrize("spoil", [Path.rmdir, Path.exists, EventLog], ids=["gone", "empty", "no event"])
def test_a_folder_without_events_is_bad_input(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    spoil(folder)
    with pytest.raises(InvalidInput, match="folder: "):
        read(folder)


def test_no_more_is_read_than_the_bounds_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encoded(ALL[0])) + 1
    for name in ("a.events.jsonl", "b.events.jsonl"):
        write(tmp_path, encoded(ALL[0]), name=name)
    monkeypatch.setattr(events, "MAX_BYTES", 2 * size)
    assert len(read(tmp_path)) == 2
    monkeypatch.setattr(events, "MAX_BYTES", 2 * size - 1)
    with pytest.raises(InvalidInput, match="more than"):
        read(tmp_path)
    monkeypatch.setattr(events, "MAX_FILE_BYTES", size - 1)
    with pytest.raises(InvalidInput, match="larger than"):
        read(tmp_path)


def test_a_folder_that_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written"):
        EventLog(tmp_path / "file" / "folder")


def test_a_full_disk_ends_the_writing_and_not_the_run(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.add(ALL[0])
    path = log._path
    log._path = Path("/dev/full")
    log.add(ALL[1])
    assert isinstance(log.problem, CannotRunHere)
    assert "make room" in str(log.problem)
    # A line after one that was perhaps cut off would be lost with it.
    log._path = path
    log.add(ALL[2])
    assert read(tmp_path) == ALL[:1]
