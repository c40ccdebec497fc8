"""Saved cases read back as they were, nothing is overwritten, and a stranger's file does no harm."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness import case as c
from harness import corpus
from harness.corpus import Found, SavedCase, Seen
from harness.errors import CannotRunHere, InvalidInput
from harness.trace import RunError
from harness.violations import Difference, Violation

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
SAVED = SavedCase(
    case=CASE,
    why="fails: outputs",
    seen=Seen(
        violations=(
            Violation(
                oracle="outputs",
                message="not equal",
                iteration=0,
                difference=Difference(float("inf"), 0.5, 3, 512),
                queues={"body": 2},
            ),
        ),
        checkpointed_error=RunError(1, "Backward", 0, "KeyError", "x"),
        queues=({}, {"body": 2}),
    ),
    where={"backend": "cpu"},
    found=Found(seed=3, domain="contract"),
)


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        corpus.load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(str(path))
    assert len(message) < len(str(path)) + 500
    return message


def write(folder: Path, **changes: Any) -> Path:
    """Write the saved case with some of its fields replaced, those given as None left out."""
    fields = {**json.loads(corpus.encode(SAVED)), **changes}
    path = folder / "case.json"
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))
    return path


def test_a_saved_case_reads_back_as_it_was(tmp_path: Path) -> None:
    path = corpus.save(tmp_path / "new" / "folder", SAVED)
    assert path.name == f"{CASE.fingerprint}.json"
    assert corpus.load(path) == SAVED


def test_a_person_reads_first_why_a_case_is_kept() -> None:
    lines = corpus.encode(SAVED).decode().splitlines()
    assert [line.split('"')[1] for line in lines[1:4]] == ["format", "fingerprint", "why"]


def test_a_file_that_holds_nothing_but_a_case_will_do(tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_bytes(c.encode(CASE))
    assert corpus.load(path) == SavedCase(case=CASE)


def test_saving_a_case_again_leaves_the_first_file(tmp_path: Path) -> None:
    path = corpus.save(tmp_path, SAVED)
    assert corpus.save(tmp_path, SavedCase(case=CASE, why="another reason")) == path
    assert corpus.load(path) == SAVED
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / f"{CASE.fingerprint}.json"
    path.write_bytes(corpus.encode(SavedCase(case=c.Case(graph=c.Linear(), schedule=(c.Evaluate(),)))))
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="exists already"):
        corpus.save(tmp_path, SAVED)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotRunHere, match="No space left on device"):
        corpus.save(tmp_path, SAVED)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written"):
        corpus.save(tmp_path / "file" / "folder", SAVED)


@pytest.mark.parametrize("taken", [False, True])
def test_a_file_system_without_links_will_do(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_path: Path, _target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    path = tmp_path / f"{CASE.fingerprint}.json"
    if taken:
        path.write_bytes(c.encode(CASE))
    assert corpus.save(tmp_path, SAVED) == path
    assert (corpus.load(path) == SAVED) is not taken
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_of_a_file_is_free(tmp_path: Path) -> None:
    assert corpus.load(write(tmp_path)) == SAVED


def test_an_edited_case_is_noticed(tmp_path: Path) -> None:
    edited = {**json.loads(c.encode(CASE)), "seed": 1}
    assert "it was edited" in refusal(write(tmp_path, case=edited))
    assert corpus.load(write(tmp_path, case=edited, fingerprint=None)).case.seed == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format 1 are known, not of 2"),
        ({"format": None}, "not of None"),
        ({"format": "\x1b[2J"}, "not of ?[2J"),
        ({"case": None}, "not a usable case"),
        ({"case": {"schema": 9}}, "knows case schema 1, got 9"),
        ({"case": []}, "not a usable case"),
        ({"novelty\x1b" * 200: 1}, "unknown field"),
        ({"why": 1}, "at `$.why`"),
        ({"seen": []}, "at `$.seen`"),
        ({"seen": {"violations": [1, {"difference": 1}]}}, "$.seen.violations"),
        ({"seen": {"violations": [{"oracle": "astrology", "message": "", "iteration": 0}]}}, "astrology"),
        ({"where": {"backend": 1}}, "at `$.where"),
    ],
)
def test_a_file_that_is_no_saved_case_is_refused(changes: Any, words: str, tmp_path: Path) -> None:
    assert words in refusal(write(tmp_path, **changes))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a usable"),
        (b"\xff\xfe", "not a usable"),
        (b"[]", "Expected `object`"),
        (b'{"schema":7}', "knows case schema 1, got 7"),
        (b'{"case":' + b"[" * 500_000, "nested too deeply"),
        (b'{"format":1,"case":{"schema":1},"why":' + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_bytes_that_are_nothing_are_refused(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(data)
    assert words in refusal(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than" in refusal(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing.json")
    assert "not a file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a file" in refusal(tmp_path / "pipe.json")


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "notes.txt"):
        (tmp_path / name).write_bytes(c.encode(CASE))
    assert [path.name for path, _ in corpus.load_folder(tmp_path)] == ["a.json", "b.json"]
    with pytest.raises(InvalidInput, match="cannot be read"):
        corpus.load_folder(tmp_path / "missing")
