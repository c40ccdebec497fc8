"""The scripts of the nightly job, run as the job runs them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness import backends, corpus, releases
from tests.harness.commands import CASE, ROOT
from tests.harness.fetched import INSTALLED, cache_installed

SCRIPTS = ROOT / ".github/scripts"
ONE_SHARD = ("-n", "0", "-p", "no:cacheprovider", "-k", "test_contract_holds and 31", "--cases", "32")


def command(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(SCRIPTS / name), *map(str, arguments)]


def run(name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        command(name, *arguments),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TE_HARNESS_DATABASE": "", **environment},
        check=False,
        timeout=300,
    )


def night(out: Path, *options: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a night that draws the simplest case only, and show it on a page of its own."""
    options = ("--backend", backends.active().name, "--seed", 1, *options, *ONE_SHARD)
    return run("nightly.py", out, 60, *options, GITHUB_STEP_SUMMARY=str(out) + ".md", **environment)


def keep(old: Path, new: Path) -> None:
    """Carry over what the job's cache carries over."""
    for name in ("corpus", "database", "issues"):
        shutil.copytree(old / name, new / name)


def test_a_finding_comes_with_timeline_script_issue_and_is_new_for_one_night(tmp_path: Path) -> None:
    planted = ("--checkpointer", "tests.harness.planted:refuses")
    first = night(tmp_path / "first", *planted)
    assert first.returncode == 1, first.stdout + first.stderr
    ((path, _),) = corpus.load_folder(tmp_path / "first/corpus")
    name = path.stem
    summary = (tmp_path / "first/summary.md").read_text()
    assert (tmp_path / "first.md").read_text() == summary + "\n"
    assert "## New findings: 1\n" in summary
    assert f"te-harness replay corpus/{name}.json" in summary
    assert "Seed 1;" in summary
    assert "There is no report" not in summary
    assert "<svg" in (tmp_path / f"first/timelines/{name}.html").read_text()
    assert f"`timelines/{name}.html` in the artifact" in summary
    script = (tmp_path / f"first/scripts/{name}.py").read_text()
    assert script.rstrip() in summary
    issue = (tmp_path / f"first/issues/{name}.md").read_text()
    assert issue.startswith("same errors: ValueError\n")
    assert script.rstrip() in issue
    assert path.read_text().rstrip() in issue
    (test,) = ET.parse(tmp_path / "first/junit.xml").iter("testcase")  # noqa: S314
    assert test.find("failure") is not None
    assert "--seed=1" in (tmp_path / "first/pytest.log").read_text()

    keep(tmp_path / "first", tmp_path / "second")
    second = night(tmp_path / "second", *planted)
    assert second.returncode == 1
    summary = (tmp_path / "second/summary.md").read_text()
    assert "## New findings: none" in summary
    assert "Of 1 cases kept from nights before: 1 reproduced, 0 changed, 0 fixed" in summary
    assert (tmp_path / f"second/issues/{name}.md").read_text() == issue


def test_a_night_that_finds_nothing_ends_with_0_and_passes_odd_files_over(tmp_path: Path) -> None:
    odd = tmp_path / "night/corpus/$(touch x) '\n.json"
    odd.parent.mkdir(parents=True)
    odd.write_text("odd")
    (odd.parent / f"{'0' * 16}.json").write_text("half a f")
    corpus.save(odd.parent / "faults", corpus.SavedCase(case=CASE))
    (tmp_path / "night/issues").mkdir()
    (tmp_path / f"night/issues/{'1' * 16}.md").write_text("of a case that is mended\n")
    ended = night(tmp_path / "night")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = (tmp_path / "night/summary.md").read_text()
    assert "## New findings: none" in summary
    assert "pytest held" in summary
    assert "kept from nights before" not in summary
    assert "There is no report" not in summary
    assert (tmp_path / "night/summary.html").is_file()
    assert odd.read_text() == "odd"
    assert not list((tmp_path / "night/issues").iterdir())


def test_a_night_that_is_stopped_still_says_what_it_has_found(tmp_path: Path) -> None:
    options = ("--backend", backends.active().name, "--checkpointer", "tests.harness.planted:hangs")
    started = command("nightly.py", tmp_path / "night", 60, *options, *ONE_SHARD)
    environment = {**os.environ, "TE_HARNESS_DATABASE": ""}
    process = subprocess.Popen(  # noqa: S603
        started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment
    )
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if line.startswith("collected "):
                process.send_signal(signal.SIGTERM)
                break
        process.stdout.read()
    assert process.returncode == 128 + signal.SIGTERM
    summary = (tmp_path / "night/summary.md").read_text()
    assert "**Stopped by SIGTERM**" in summary
    assert "New findings: none" in summary


def test_a_folder_with_anything_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("mine")
    ended = night(tmp_path)
    assert ended.returncode == 1
    assert "holds 'summary.md': give a new folder" in ended.stderr
    assert (tmp_path / "summary.md").read_text() == "mine"


def test_a_night_on_cpus_has_a_campaign_for_each_release_and_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_installed()
    ended = run("cpu_nightly.py", tmp_path / "night", 12, "--seed", 4, INSTALLED)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = (tmp_path / "night/summary.md").read_text()
    assert f"contract {releases.normalized(INSTALLED)}: held" in summary
    assert "Seed 4; cases were drawn for 6 seconds" in summary
    tests = ET.parse(tmp_path / "night/junit.xml").findall("testcase")  # noqa: S314
    assert [test.get("name") for test in tests] == [f"contract {INSTALLED}", f"frontier {INSTALLED}"]


def test_a_command_past_its_limit_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    inner = "sleep 600 & echo $!; wait"
    code = f"""
import sys
import time
from pathlib import Path
from children import Children
print(Children().run(["bash", "-c", {inner!r}], Path({str(log)!r}), 0.5))
"""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, timeout=60
    )
    assert ended.stdout.splitlines()[-1] == "124"
    _wait_until_gone(int(log.read_text()))


def _wait_until_gone(pid: int) -> None:
    """Wait until a process that was killed is gone; whoever adopted it may take a moment to notice."""
    deadline = time.monotonic() + 10.0
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
        pytest.fail(f"process {pid} is still there")


# --- Issues ---

GH = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["ISSUES"])
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
if words[:2] == ["issue", "list"]:
    if "--state" not in words or value("--state") != "all":
        raise SystemExit("closed ones count too")
    if "--label" in words or "--search" in words:
        raise SystemExit("this asks an index, which lags behind")
    print(json.dumps([{{"title": path.read_text().splitlines()[0]}} for path in folder.iterdir()]))
elif words[:2] == ["issue", "create"]:
    body = pathlib.Path(value("--body-file")).read_text()
    (folder / str(len(list(folder.iterdir())))).write_text(value("--title") + "\\n" + body)
elif words[:2] == ["label", "list"]:
    print(json.dumps([{{"name": name}} for name in (folder.parent / "labels").read_text().split()]))
elif words[:2] == ["label", "create"]:
    with (folder.parent / "labels").open("a") as labels:
        labels.write(words[2] + "\\n")
else:
    raise SystemExit(f"unknown: {{words}}")
"""


class Tracker:
    """A ``gh`` that keeps its issues in a folder, and a folder of nights to file from."""

    def __init__(self, folder: Path) -> None:
        self.issues, self.nights = folder / "tracker", folder / "nights"
        for made in (self.issues, self.nights, folder / "bin"):
            made.mkdir()
        self.labels = folder / "labels"
        self.labels.write_text("bug\n")
        self.gh = folder / "bin/gh"
        self.gh.write_text(GH)
        self.gh.chmod(0o755)

    def find(self, *names: str, night: str = "night-cpu", text: str = "pairing\n\nbody `$(id)`\n") -> None:
        folder = self.nights / night / "issues"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / f"{name}.md").write_text(text)

    def file(self, *options: object) -> subprocess.CompletedProcess[str]:
        path = f"{self.gh.parent}{os.pathsep}{os.environ['PATH']}"
        return run("file_issues.py", self.nights, *options, PATH=path, ISSUES=str(self.issues))

    @property
    def titles(self) -> list[str]:
        return sorted(path.read_text().splitlines()[0] for path in self.issues.iterdir())


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    return Tracker(tmp_path)


def test_a_fingerprint_is_filed_once_whoever_finds_it_however_often(tracker: Tracker) -> None:
    tracker.find("a" * 16)
    tracker.find("a" * 16, "b" * 16, night="night-gpu-newest")
    assert tracker.file("--run", "https://example.org/run").returncode == 0
    assert tracker.titles == [f"{'a' * 16}: pairing", f"{'b' * 16}: pairing"]
    for issue in tracker.issues.iterdir():
        assert "body `$(id)`\n\n\nFound by https://example.org/run" in issue.read_text()
    assert tracker.labels.read_text() == "bug\nte-harness\n"
    again = tracker.file()
    assert "2 fingerprints, of which 2 have an issue." in again.stdout
    assert len(tracker.titles) == 2


def test_a_fingerprint_that_an_issue_has_is_left_alone(tracker: Tracker) -> None:
    (tracker.issues / "closed").write_text(f"A title that somebody changed ({'a' * 16})\n")
    tracker.find("a" * 16)
    assert tracker.file().returncode == 0
    assert len(tracker.titles) == 1


def test_no_more_than_asked_are_filed_in_one_night_and_the_rest_in_the_next(tracker: Tracker) -> None:
    tracker.find(*(f"{number:016x}" for number in range(7)))
    assert "2 more are left for the next night: at most 5 are filed." in tracker.file().stdout
    assert len(tracker.titles) == 5
    tracker.file()
    assert len(tracker.titles) == 7
    # A label that there is may have a colour that somebody chose.
    assert tracker.labels.read_text().count("te-harness") == 1


def test_a_dry_run_files_nothing(tracker: Tracker) -> None:
    tracker.find("a" * 16)
    assert f"would file {'a' * 16}: pairing" in tracker.file("--dry-run").stdout
    assert not tracker.titles
    assert tracker.labels.read_text() == "bug\n"


def test_what_a_file_is_named_and_says_is_data(tracker: Tracker) -> None:
    tracker.find("$(id)", "--label", "A" * 16)
    tracker.find("c" * 16, text="--body `id`\x1b[0m\n@somebody\n")
    assert tracker.file().returncode == 0
    assert tracker.titles == [f"{'c' * 16}: --body `id` [0m"]


def test_where_the_issues_cannot_be_listed_none_is_filed(tracker: Tracker) -> None:
    tracker.find("a" * 16)
    tracker.gh.write_text(GH.replace('["issue", "list"]', '["list"]'))
    ended = tracker.file()
    assert ended.returncode == 1
    assert ended.stderr.startswith("file_issues.py: issue list: unknown")
    assert not tracker.titles
