"""``te-harness report``: what came of a run, new findings first, in words that no stranger can twist."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from harness import case as c
from harness import events
from harness.corpus import Found, SavedCase, Seen
from harness.document_html import html
from harness.document_markdown import markdown
from harness.events import FORMAT, Ended, EventLog, Started, Where
from harness.run_report import blocks, verdict
from harness.run_summary import summarise
from harness.tally import Tally
from harness.violations import Violation
from tests.harness.commands import CASE, ROOT, complaint, fuzz, invoke

LARGER = c.Case(graph=c.Chain((CASE.graph, CASE.graph)), schedule=CASE.schedule)
DRAINED = Violation(oracle="FIFO drained", message="1 snapshots left", iteration=0, queues={"body.body": 1})
LEAK = SavedCase(
    case=CASE, why="fails", seen=Seen(violations=(DRAINED,)), found=Found(seed=7, domain="contract")
)


def started(seed: int = 7) -> Started:
    return Started(format=FORMAT, time=100.0, run="pytest", seed=seed, seconds=60.0, workers=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two workers that found a leak twice and lost a process."""
    main, *workers = EventLog(tmp_path), EventLog(tmp_path), EventLog(tmp_path)
    main.add(started())
    for number, log in enumerate(workers):
        log.add(Where(where={"backend": "cuda", "device": "NVIDIA H200", "torch": "2.11"}, reason="a GPU"))
        tally = Tally(cases=50, features=Counter(reentrant=30), oracles=Counter(outputs=50))
        # What is recorded later holds what was recorded before.
        log.add(events.counted("contract", Tally(cases=10), since=100.0))
        log.add(msgspec.structs.replace(events.counted("contract", tally, since=100.0 + number), time=110.0))
        log.add(events.counted("frontier", Tally(cases=20, known=Counter({"last-in-first-out": 5})), 101.0))
    larger = msgspec.structs.replace(LEAK, case=LARGER)
    workers[0].add(events.failed("contract", "FIFO drained", larger, None, None))
    workers[1].add(events.failed("contract", "FIFO drained", LEAK, Path("corpus/leak.json"), "replay leak"))
    crash = SavedCase(case=LARGER, why="crash: SIGSEGV", seen=Seen(ending="SIGSEGV"))
    main.add(events.failed("contract", "crash: SIGSEGV", crash, None, "replay crash"))
    main.add(Ended(time=112.0))
    return tmp_path


def test_the_processes_of_a_run_are_added_up_and_the_smallest_case_of_a_kind_is_kept(folder: Path) -> None:
    summary = summarise(folder)
    assert summary.cases == 140
    assert summary.drawn["contract"].tally.features["reentrant"] == 60
    assert summary.drawn["contract"].since == 100.0
    assert summary.known == Counter({"last-in-first-out": 10})
    assert [(finding.crash, finding.saved.case) for finding in summary.findings] == [
        (False, CASE),
        (True, LARGER),
    ]
    assert summary.unfinished == 0
    assert verdict(summary) == "1 new finding, 1 crash"


def test_new_findings_come_first_each_with_its_script_and_command(folder: Path) -> None:
    text = markdown(blocks(summarise(folder)))
    assert text.startswith("# 1 new finding, 1 crash\n")
    places = [
        text.index(part) for part in ("## FIFO drained", "replay leak", "import torch", "## crash: SIGSEGV")
    ]
    assert places == sorted(places)
    assert text.index("## crash: SIGSEGV") < text.index("known issues seen: 1") < text.index("features drawn")
    assert "FIFO drained \\[iteration" not in text, "what a case did is code, not prose"
    assert "what a case does to its process is not for a script to show" in text


def test_a_timeline_beside_the_events_is_linked(folder: Path) -> None:
    page = folder / "timelines" / f"{CASE.fingerprint}.html"
    page.parent.mkdir()
    page.touch()
    assert f"(timelines/{CASE.fingerprint}.html)" in markdown(blocks(summarise(folder)))


def test_the_page_is_whole_and_needs_nothing_else(folder: Path) -> None:
    page = html("a night", blocks(summarise(folder))).decode()
    assert page.startswith("<!DOCTYPE html>")
    assert "http://" not in page.replace("http-equiv", "")
    assert "https://" not in page
    assert "1 new finding, 1 crash" in page


def test_words_of_strangers_stay_words(tmp_path: Path) -> None:
    evil = "</code></pre><script>alert(1)</script> ``` | \x1b[31m"
    violation = Violation(oracle="same errors", message=evil, iteration=0)
    saved = SavedCase(case=CASE, why=evil, seen=Seen(violations=(violation,)))
    log = EventLog(tmp_path)
    log.add(Where(where={"device": evil}, reason=evil))
    log.add(events.failed("contract", evil, saved, Path("x"), evil))
    log.add(Ended(time=1.0, fault=evil))
    told = blocks(summarise(tmp_path))
    page = html(evil, told).decode()
    assert "<script>" not in page
    assert "\x1b" not in page
    text = markdown(told)
    assert "\x1b" not in text
    outside_code = [line for line in text.split("\n") if "<script>" in line]
    assert all(line.startswith(("same errors", "</code>")) for line in outside_code)
    assert "````\n" in text, "a fence is longer than any within"


def test_a_run_that_was_killed_or_failed_says_so(tmp_path: Path) -> None:
    EventLog(tmp_path).add(started())
    summary = summarise(tmp_path)
    assert summary.unfinished == 1
    assert verdict(summary) == "no case was judged"
    assert "a run has told of no end" in markdown(blocks(summary))
    EventLog(tmp_path).add(Ended(time=2.0, fault="the oracle fell over"))
    assert verdict(summarise(tmp_path)) == "the harness failed"


# --- The command ---


def test_a_campaign_is_recorded_and_reported(tmp_path: Path) -> None:
    planted = ("--checkpointer", "tests.harness.planted:refuses")
    assert fuzz(tmp_path, "--events", tmp_path / "events", *planted, cases=3).exit_code == 1
    summary = summarise(tmp_path)
    assert summary.cases == 3
    assert summary.drawn["contract"].tally.violations == {"same errors": 3}
    (finding,) = summary.findings
    assert finding.path is not None
    assert Path(finding.path).exists()
    assert summary.where[0]["checkpointer"] == "tests.harness.planted:refuses"
    page, text = tmp_path / "page.html", tmp_path / "page.md"
    told = invoke("report", tmp_path, "--html", page, "--markdown", text)
    assert (told.exit_code, told.stdout) == (1, "1 new finding\n")
    assert finding.fingerprint in text.read_text()
    assert finding.fingerprint in page.read_text()
    again = invoke("report", tmp_path, "--html", page)
    assert again.exit_code == 2
    assert "exists already" in complaint(again)


def test_a_campaign_that_finds_nothing_reports_nothing_new(tmp_path: Path) -> None:
    assert fuzz(tmp_path, "--events", tmp_path / "events").exit_code == 0
    told = invoke("report", tmp_path / "events")
    assert told.exit_code == 0
    assert told.stdout.startswith("# nothing new\n")


def test_a_report_of_nothing_is_bad_input(tmp_path: Path) -> None:
    told = invoke("report", tmp_path)
    assert told.exit_code == 2
    assert "no run has recorded events" in complaint(told)


def test_a_report_needs_neither_torch_nor_transformer_engine(folder: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformer_engine'] = None;"
        "from harness.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "report", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("# 1 new finding, 1 crash")
