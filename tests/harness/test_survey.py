"""Every release is asked about every case, and none of them can spoil the others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import case as c
from harness import record, releases, survey
from harness.errors import InvalidInput
from harness.record import Entry, Header, Record
from harness.releases import IndexUnreachable
from harness.survey import Row, Rows

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
OTHER_CASE = c.Case(graph=c.Region(c.LayerNormMLP()), schedule=(c.Evaluate(),))
HELD = Entry(
    fingerprint=CASE.fingerprint,
    case=CASE,
    held=True,
    signature=(),
    direct_error=None,
    checkpointed_error=None,
    queues=(),
    events=(),
)
LACKING = msgspec.structs.replace(
    HELD, fingerprint=OTHER_CASE.fingerprint, case=OTHER_CASE, held=False, lacks="a module"
)
FATES = {
    "held": HELD,
    "violated": msgspec.structs.replace(HELD, held=False, signature=("FIFO drained", "pairing")),
    "agreed on nothing": msgspec.structs.replace(
        HELD, direct_error=(0, "TypeError"), checkpointed_error=(0, "TypeError")
    ),
}

CHILD = """
import json, os, shutil, sys, time
_, out, _, release = sys.argv[1:5]
fate = json.loads(os.environ["FATES"])[release]
if fate == "hangs":
    time.sleep(600)
elif fate == "dies":
    os.kill(os.getpid(), 9)
elif isinstance(fate, list):
    print(fate[1], file=sys.stderr)
    sys.exit(fate[0])
elif fate != "writes nothing":
    shutil.copy(os.path.join(os.environ["RECORDS"], fate), out)
"""


class Noted(subprocess.Popen[bytes]):
    """A process that is remembered, with how many ran beside it when it began."""

    all: list[Noted]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.beside = sum(other.poll() is None for other in self.all)
        super().__init__(*arguments, **options)
        self.all.append(self)


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Noted]:
    """Have processes started that do as FATES says instead of running a release."""
    for fate, entry in FATES.items():
        record.save(tmp_path / fate, Record(Header(record.FORMAT, {}), (entry, LACKING)))
    monkeypatch.setenv("RECORDS", str(tmp_path))
    monkeypatch.setattr(releases, "fetch", releases.folder_of)
    monkeypatch.setattr(releases, "start_command", lambda words: [sys.executable, "-S", "-c", CHILD, *words])
    monkeypatch.setattr(survey, "cores", lambda: 2)
    monkeypatch.setattr(Noted, "all", [], raising=False)
    monkeypatch.setattr(subprocess, "Popen", Noted)
    return Noted


def judge(fates: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    monkeypatch.setenv("FATES", json.dumps(fates))
    return [row for (row,) in survey.judge([CASE], list(fates), "installed")]


def test_each_release_has_its_row_whatever_becomes_of_the_others(
    crew: type[Noted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_PATIENCE_SECONDS", 2.0)
    fates = {
        "2.1.0": "hangs",
        "2.2.0": "held",
        "2.3.0": "violated",
        "2.4.0": "dies",
        "2.5.0": [125, "te-harness: too old"],
        "2.6.0": [3, "Traceback\n  odd\nZeroDivisionError: by \x1bzero\n"],
        "2.7.0": [17, ""],
        "2.8.0": "agreed on nothing",
        "2.9.0": "held",
    }
    assert judge(fates, monkeypatch) == [
        Row("2.1.0", "failed", reason="no verdict within 2 seconds"),
        Row("2.2.0", "held"),
        Row("2.3.0", "violated", ("FIFO drained", "pairing")),
        Row("2.4.0", "failed", reason="died of signal 9"),
        Row("2.5.0", "cannot run", reason="too old"),
        Row("2.6.0", "failed", reason="ZeroDivisionError: by ?zero"),
        Row("2.7.0", "failed", reason="exit code 17"),
        Row("2.8.0", "cannot run", reason="both runs raised TypeError in step 0: nothing to compare"),
        Row("2.9.0", "held"),
    ]
    assert max(process.beside for process in crew.all) == 1, "two run at a time"


@pytest.mark.usefixtures("crew")
def test_each_case_has_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FATES", json.dumps({"2.1.0": "violated", "2.2.0": [125, "te-harness: too old"]}))
    told: list[Rows] = []
    found = survey.judge([OTHER_CASE, CASE], ["2.1.0", "2.2.0"], "installed", told.append)
    assert found == [
        (
            Row("2.1.0", "cannot run", reason="lacks a module"),
            Row("2.1.0", "violated", FATES["violated"].signature),
        ),
        (Row("2.2.0", "cannot run", reason="too old"),) * 2,
    ]
    assert sorted(told, key=lambda rows: rows[0].release) == found


@pytest.mark.usefixtures("crew")
def test_a_process_that_leaves_no_record_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = judge({"2.1.0": "writes nothing"}, monkeypatch)
    assert row.status == "failed"
    assert "there is no such file" in row.reason


def test_an_interruption_ends_the_processes(crew: type[Noted], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_rows: Rows) -> None:
        raise KeyboardInterrupt

    fates = {"2.1.0": "hangs", "2.2.0": "held", "2.3.0": "held"}
    monkeypatch.setenv("FATES", json.dumps(fates))
    with pytest.raises(KeyboardInterrupt):
        survey.judge([CASE], list(fates), "installed", interrupt)
    assert [process.returncode for process in crew.all] == [-9, 0]


@pytest.mark.usefixtures("crew")
def test_a_release_that_is_not_there_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(release: str) -> Path:
        if release == "2.2.0":
            raise InvalidInput("no such release")
        return releases.folder_of(release)

    monkeypatch.setattr(releases, "fetch", fetch)
    fates = {"2.1.0": "held", "2.2.0": "held", "2.3.0": "held"}
    found = judge(fates, monkeypatch)
    assert [row.status for row in found] == ["held", "cannot run", "held"]
    assert found[1].reason == "no such release"


@pytest.mark.usefixtures("crew")
def test_an_index_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(release: str) -> Path:
        if release != "2.3.0":
            asked.append(release)
            raise IndexUnreachable("no index")
        return releases.folder_of(release)

    monkeypatch.setattr(releases, "fetch", fetch)
    monkeypatch.setattr(releases, "is_cached", lambda release: release == "2.3.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = judge({"2.1.0": "held", "2.2.0": "held", "2.3.0": "held"}, monkeypatch)
    assert [row.status for row in found] == ["cannot run", "cannot run", "held"]
    assert asked == ["2.1.0"]
