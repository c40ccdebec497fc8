"""The commands that list mutants and try them, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest


def command(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "HOME": str(tmp_path)}
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "harness", *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**environment, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )


def test_mutants_are_listed_with_what_they_change(tmp_path: Path) -> None:
    done = command(tmp_path, "mutants", "named:bypass-reverted", "--diff")
    assert done.returncode == 0
    first, *diff = done.stdout.splitlines()
    assert first.startswith("named:bypass-reverted  entered with gradients off")
    assert "+    if False:" in diff


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("mutants", "nothing"), "no mutant matches 'nothing'"),
        (("sensitivity", "--mutants", "nothing"), "no mutant matches 'nothing'"),
        (("fuzz", "--te", "mutant:nothing"), "has no mutant 'nothing'"),
    ],
)
def test_a_mutant_that_does_not_exist_is_bad_input(
    tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    done = command(tmp_path, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.emulation
def test_a_mutant_is_tried_reported_and_shown_again(tmp_path: Path) -> None:
    report, page, again = tmp_path / "a.json", tmp_path / "a.md", tmp_path / "b.md"
    wanted = ("sensitivity", "--mutants", "named:guard-reverted", "--cases", "20", "--workers", "1")
    done = command(tmp_path, *wanted, "--json", str(report), "--markdown", str(page))

    assert done.returncode == 0, done.stderr
    (trial,) = json.loads(report.read_text())["trials"]
    assert (trial["outcome"], trial["by"]) == ("killed", ["same errors"])
    assert not list((tmp_path / "cache" / "te-harness" / "sensitivity").glob("*")), "nothing is left to do"

    shown = command(tmp_path, "sensitivity", "--from", str(report), "--markdown", str(again))
    assert shown.returncode == 0, shown.stderr
    assert again.read_text() == page.read_text()


@pytest.mark.emulation
def test_an_interrupted_campaign_leaves_its_files_free_and_goes_on(tmp_path: Path) -> None:
    report = tmp_path / "a.json"
    words = ("sensitivity", "--mutants", "pytorch/distributed.py:checkpoint:*", "--cases", "20")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    started = [sys.executable, "-m", "harness", *words, "--json", str(report)]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True, env=environment) as campaign:  # noqa: S603
        journals = tmp_path / "cache" / "te-harness" / "sensitivity"
        while campaign.poll() is None and not any(p.stat().st_size > 1 for p in journals.glob("*.jsonl")):
            time.sleep(0.1)
        # Not SIGINT: where pytest itself runs in the background, that is ignored.
        campaign.terminate()
        told, _ = campaign.communicate(timeout=60)
    assert campaign.returncode == 130
    assert "the same command goes on" in told
    assert not report.exists()
    (journal,) = journals.glob("*.jsonl")

    other = command(tmp_path, "sensitivity", "--mutants", "named:guard-reverted", "--cases", "20")
    assert other.returncode == 0
    assert journal.exists(), "another campaign's end takes nothing from it"


def test_two_reports_are_two_files(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    done = command(tmp_path, "sensitivity", "--cases", "20", "--json", path, "--markdown", path)
    assert (done.returncode, "two reports cannot be one file" in done.stderr) == (2, True)
