"""Records hold what must be the same everywhere, and comparing two finds what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import case as c
from harness import corpus, record
from harness.campaign import chunks, run_chunk
from harness.errors import InvalidInput
from harness.record import Entry, Header, Record
from harness.session import Session
from harness.trace import Event
from strategies.contract import contract

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
ENTRY = Entry(
    fingerprint=CASE.fingerprint,
    case=CASE,
    held=True,
    signature=(),
    direct_error=None,
    checkpointed_error=None,
    queues=({},),
    events=(Event(0, 0, 1), Event(0, 0, 1, "body", delayed=True, pushed=(0,))),
)
RECORD = Record(Header(record.FORMAT, {"backend": "cpu"}), (ENTRY,))

DEEP = b'{"case":{"graph":' + b'{"type":"Residual","body":' * 20_000


def changed(**fields: Any) -> Record:
    return msgspec.structs.replace(RECORD, entries=(msgspec.structs.replace(ENTRY, **fields),))


def differences(other: Record) -> list[str]:
    return [line for found in record.compare(RECORD, other) for line in found.differences]


def test_a_record_reads_back_as_it_was(tmp_path: Path) -> None:
    record.save(tmp_path / "record", RECORD)
    assert record.load(tmp_path / "record") == RECORD


def test_judging_the_same_cases_twice_gives_the_same_record(te_session: Session) -> None:
    cases = record.draw(contract(), 3, seed=1)
    mine, other = (record.judge(te_session, cases, {}, lambda _tally: None) for _ in range(2))
    assert [entry.case for entry in mine.entries] == cases
    assert mine == other


def test_a_record_draws_the_cases_of_a_campaign(te_session: Session) -> None:
    judged: list[c.Case] = []
    ((seed, cases),) = chunks(5, seed=1)
    run_chunk(te_session.judge, contract(), seed, cases, lambda case, _verdict: judged.append(case))
    assert record.draw(contract(), 5, seed=1) == judged


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text("mine")
    with pytest.raises(InvalidInput, match="exists already"):
        record.save(path, RECORD)
    assert path.read_text() == "mine"


def test_cases_come_from_a_record_a_saved_case_or_a_folder(tmp_path: Path) -> None:
    record.save(tmp_path / "record", RECORD)
    saved = corpus.save(tmp_path / "corpus", corpus.SavedCase(case=CASE))
    (tmp_path / "bare.json").write_bytes(c.encode(CASE))
    for source in ("record", saved, "corpus", "bare.json"):
        assert record.load_cases(tmp_path / source) == [CASE]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"format":2,"where":{}}', "records of format 1 are known, not of 2"),
        (b'{"format":1,"where":{}}', "a record without cases"),
        (b"", "not a usable saved case"),
        (b"{}", "not a usable case"),
        (DEEP, "nested too deeply"),
    ],
)
def test_a_file_without_cases_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        record.load_cases(tmp_path / "file")


def test_equal_records_agree() -> None:
    assert record.compare(RECORD, RECORD) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"held": False, "signature": ("pairing",)}, "verdict: held and violated (pairing)"),
        ({"direct_error": (1, "KeyError")}, "error of the direct run: none and KeyError in step 1"),
        ({"checkpointed_error": (1, "KeyError")}, "error of the checkpointed run: none and KeyError"),
        ({"queues": ({"body": 1},)}, "FIFO lengths at each standstill: [{}] and [{'body': 1}]"),
        ({"events": ENTRY.events[::-1]}, "event 0: "),
        ({"events": ENTRY.events[:1]}, "events: 2 and 1"),
    ],
)
def test_what_differs_is_said(fields: dict[str, Any], words: str) -> None:
    (line,) = differences(changed(**fields))
    assert words in line


def test_records_of_different_cases_are_not_compared() -> None:
    with pytest.raises(InvalidInput, match="different cases"):
        record.compare(RECORD, changed(fingerprint="0" * 16))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([b""], "line 1 is not of a record"),
        ([b"\xff"], "line 1 is not of a record"),
        ([b'{"format":2,"where":{}}'], "format 1 are known, not of 2"),
        ([b'{"format":1,"where":{}}'], "without cases"),
        ([b'{"format":1,"where":{}}', b"{}"], "line 2 is not of a record"),
        ([b'{"format":1,"where":{}}', DEEP], "line 2 is nested too deeply"),
    ],
)
def test_a_file_that_is_no_record_is_refused(lines: list[bytes], words: str, tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"\n".join(lines))
    with pytest.raises(InvalidInput, match=words) as caught:
        record.load(tmp_path / "record")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"seed": -1}, r"\$.seed"), ({"seed": 1}, "not the one that the fingerprint names")],
)
def test_a_case_in_a_record_is_checked(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    record.save(tmp_path / "good", RECORD)
    header, line = (tmp_path / "good").read_text().splitlines()
    entry = json.loads(line)
    entry["case"].update(change)
    (tmp_path / "bad").write_text(f"{header}\n{json.dumps(entry)}\n")
    with pytest.raises(InvalidInput, match=words):
        record.load(tmp_path / "bad")
