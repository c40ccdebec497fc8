"""``te-harness report``: a run as a person reads it in a minute, on any machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness import run_report
from harness.events import Ended, Event, Where
from harness.violations import Violation
from tests.harness.commands import CASE, PLANTED, ROOT, complaint, fuzz, invoke
from tests.harness.recorded import LARGER, STARTED, counts, failure, record, whole


def told(folder: Path) -> str:
    return invoke("report", folder).stdout


def test_a_campaign_is_recorded_and_told(tmp_path: Path) -> None:
    assert fuzz(tmp_path, "--events", tmp_path / "events", *PLANTED, cases=2).exit_code == 1
    result = invoke("report", tmp_path / "events")
    assert result.exit_code == 1
    (path, *_) = sorted((tmp_path / "corpus").iterdir())
    assert "new finding" in result.stdout.splitlines()[0]
    assert f"replay {path} " in result.stdout
    assert "No script: a script calls te.checkpoint, and tests.harness.planted:no" in result.stdout
    assert "fuzz contract | 5 | 2 cases | 1 |" in result.stdout


def test_a_campaign_that_finds_nothing_reports_nothing_new(tmp_path: Path) -> None:
    assert fuzz(tmp_path, "--events", tmp_path / "events").exit_code == 0
    result = invoke("report", tmp_path / "events")
    assert result.exit_code == 0
    assert result.stdout.startswith("# nothing new\n")


def test_new_findings_come_first_and_with_all_that_one_needs(tmp_path: Path) -> None:
    text = told(whole(tmp_path, failure()))
    wanted = [
        "# 1 new finding",
        "| verdict | cases | cases per second | new findings | crashes | known issues seen |",
        "| violated | 10 | 1.0 | 1 | 0 | none |",
        "## New findings",
        "### 1. FIFO drained",
        f"Case {CASE.fingerprint} of the contract: Linear in a reentrant region, inside an FP8 autocast",
        "```\nFIFO drained [iteration 0]: 1 left over\n```",
        "```sh\nte-harness replay corpus/a.json\n```",
        "<details><summary>Script of torch and Transformer Engine alone</summary>",
        "import transformer_engine.pytorch as te",
        "<details><summary>The case as data</summary>",
        "<details><summary>Features drawn: 0 of ",
        "## What ran",
        "| contract | 10 | 10.0 | 1.0 |",
    ]
    places = [text.index(line) for line in wanted]
    assert places == sorted(places)


def test_a_finding_that_was_never_saved_can_be_replayed(tmp_path: Path) -> None:
    text = told(record(tmp_path, STARTED, failure(path=None)))
    file = f"{CASE.fingerprint}.json"
    assert (
        f"write the case as data, below, into {file}, and replay it:\n\n```sh\nte-harness replay {file}"
        in text
    )
    data = text.split("The case as data</summary>\n\n```json\n")[1].split("\n```")[0]
    (tmp_path / file).write_text(data)
    from harness import corpus

    assert corpus.load(tmp_path / file).case == CASE


def test_known_issues_are_told_with_their_sentence_and_make_no_verdict(tmp_path: Path) -> None:
    run = record(tmp_path, counts(known={"nested-regions": 3, "unheard-of": 1}), Ended(time=1.0))
    assert invoke("report", run).exit_code == 0
    assert "| 4 times |" not in told(run)
    assert "| held | 10 | 1.0 | 0 | 0 | 2, 4 times |" in told(run)
    assert "| nested-regions | 3 | Of two regions, one inside the other, the inner one's end" in told(run)


def test_coverage_names_what_was_never_drawn(tmp_path: Path) -> None:
    run = record(tmp_path, counts(features={"chain": 4}, oracles={"outputs": 9}, lacking={"silu": 2}))
    assert "Features drawn: 1 of" in told(run)
    assert "Never: RNG tracker, activation: not gelu," in told(run)
    assert "Oracles evaluated: 1 of 10" in told(run)
    assert "Not run, for what is lacking here: 2 cases" in told(run)
    assert "nested regions" not in told(run)
    frontier = record(tmp_path / "frontier", counts("frontier", features={"nested regions": 1}))
    assert "| nested regions | 1 |" in told(frontier)


@pytest.mark.parametrize(
    ("happened", "code", "said"),
    [
        ([counts(), Ended(time=1.0)], 0, "# nothing new\n"),
        ([counts(), failure()], 1, "# 1 new finding\n"),
        ([counts(), failure("crash: SIGSEGV", ending="SIGSEGV")], 1, "ended its process: SIGSEGV"),
        ([counts(), msgspec.structs.replace(failure(), shared=True)], 1, "that fails still\n"),
        ([counts(cases=0)], 2, "# no case was judged\n"),
        ([counts(), Ended(time=1.0, fault="planted")], 3, "Ended by an error: planted"),
        ([counts(), Ended(time=1.0, interrupted=True)], 0, "Interrupted before all cases were drawn."),
        ([STARTED, counts()], 0, "1 run has told of no end: killed, or still going on."),
        ([counts(raised=2)], 0, "In 2 cases both runs raised alike"),
    ],
)
def test_it_ends_with_the_code_of_what_happened(
    tmp_path: Path, happened: list[Event], code: int, said: str
) -> None:
    result = invoke("report", record(tmp_path, *happened))
    assert result.exit_code == code
    assert said in result.stdout


def test_a_folder_without_events_is_bad_input(tmp_path: Path) -> None:
    result = invoke("report", tmp_path)
    assert result.exit_code == 2
    assert "no run has recorded events" in complaint(result)


def test_files_are_new_ones(tmp_path: Path) -> None:
    run = whole(tmp_path / "run", failure())
    page, text = tmp_path / "page.html", tmp_path / "page.md"
    result = invoke("report", run, "--html", page, "--markdown", text)
    assert (result.exit_code, result.stdout) == (1, "1 new finding\n")
    assert text.read_text() == told(run)
    assert page.read_text().startswith("<!DOCTYPE html>")
    again = invoke("report", run, "--html", page)
    assert again.exit_code == 2
    assert "exists already" in complaint(again)


@pytest.mark.parametrize("place", ["run/timelines", "timelines"], ids=["with the events", "beside the page"])
def test_a_page_leads_to_the_timelines_that_there_are(tmp_path: Path, place: str) -> None:
    run = whole(tmp_path / "run", failure(), failure("pairing", case=LARGER))
    timeline = tmp_path / place / f"{CASE.fingerprint}.html"
    timeline.parent.mkdir()
    timeline.touch()
    invoke("report", run, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f'<a href="{place}/{CASE.fingerprint}.html">' in page
    assert page.count("<a href=") == 1


def test_words_of_strangers_stay_words(tmp_path: Path) -> None:
    evil = "</code></pre><script>alert(1)</script> ``` | \x1b[31m\n# new"
    violation = Violation(oracle="same errors", message=evil, iteration=0, module=evil)
    found = failure(evil, path=evil, violations=[violation], te_mode=evil, checkpointer=evil)
    place = Where(where={"device": evil, evil: evil}, reason=evil)
    run = record(
        tmp_path / "run",
        place,
        found,
        counts(evil, known={evil: 1}, lacking={evil: 1}),
        Ended(time=1.0, fault=evil),
    )
    assert invoke("report", run, "--html", tmp_path / "page.html").exit_code == 3
    page, text = (tmp_path / "page.html").read_text(), told(run)
    assert "<script>" not in page
    assert "\x1b" not in page + text
    outside_code = re.sub(r"(?ms)^(`{4,})(sh)?\n.*?^\1$", "", text)
    assert "alert" in outside_code
    assert not re.search(r"(?<!\\)<script|^# new", outside_code, re.MULTILINE)


def test_of_very_many_findings_the_smallest_are_told_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "_MOST_IN_FULL", 1)
    text = told(whole(tmp_path, failure("outputs"), failure("pairing", case=LARGER)))
    assert text.count("The case as data") == 1
    assert f"| pairing | {LARGER.fingerprint} | te-harness replay corpus/a.json |" in text


def test_a_report_needs_neither_torch_nor_transformer_engine(tmp_path: Path) -> None:
    run = whole(tmp_path / "run", failure())
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformer_engine']));"
        " from harness.cli import main; main()"
    )
    options = ["report", str(run), "--html", str(tmp_path / "page.html")]
    command = [sys.executable, "-c", code, *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)  # noqa: S603
    assert (result.returncode, result.stdout, result.stderr) == (1, "1 new finding\n", "")
