"""``te-harness fuzz``: how a campaign ends, what it shows, and what it leaves behind."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness import backends, corpus, gpus, workers
from harness.errors import InvalidInput
from harness.plan import Outcome, Plan
from harness.target import Target
from tests.harness.commands import PLANTED, ROOT, fuzz, here, invoke
from tests.harness.fake_nvml import GIB, Device, FakeNvml


def test_a_campaign_in_which_all_holds_ends_with_0(tmp_path: Path) -> None:
    result = fuzz(tmp_path, "--json", tmp_path / "report.json", cases=5)
    assert result.exit_code == 0
    assert "5 of the domain contract, seed 5" in result.stdout
    assert result.stdout.splitlines()[-1].split() == ["violations", "none"]
    assert json.loads((tmp_path / "report.json").read_text())["cases"] == 5
    assert not (tmp_path / "corpus").exists()


def test_a_failing_campaign_gives_the_command_that_replays(tmp_path: Path) -> None:
    result = fuzz(tmp_path, "--te", "installed", *PLANTED)
    assert result.exit_code == 1
    command = next(line for line in result.stdout.splitlines() if "replay with: " in line).split(": ", 1)[1]
    words = shlex.split(command)
    assert words[3:] == [
        "replay", words[4], "--te", "installed", "--backend", backends.active().name, *PLANTED
    ]  # fmt: skip
    assert Path(words[4]).parent == tmp_path / "corpus"
    replayed = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)  # noqa: S603
    assert replayed.returncode == 1
    assert replayed.stdout.startswith(f"reproduced {Path(words[4]).stem} ")


def test_what_cannot_be_saved_is_still_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> Path:
        raise InvalidInput("the folder is gone")

    monkeypatch.setattr(corpus, "save", full)
    result = fuzz(tmp_path, *PLANTED)
    assert result.exit_code == 1
    assert "te-harness: the folder is gone" in result.stderr
    assert "not saved" in result.stdout


def test_a_case_that_ends_its_process_is_saved_apart_and_ends_with_1(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = fuzz(tmp_path, "--checkpointer", "tests.harness.planted:dies", "--json", report)
    assert result.exit_code == 1
    # As it was drawn, and made smaller.
    paths = set((tmp_path / "corpus" / "crashes").iterdir())
    assert {corpus.load(path).why.split(" (")[0] for path in paths} == {"crash: exit code 17"}
    assert {Path(crash["saved"]) for crash in json.loads(report.read_text())["crashes"]} == paths
    assert "that ended the process, or hung" in result.stdout
    path = min(paths)
    assert f"replay {path}" in result.stdout
    again = here("replay", path, "--checkpointer", "tests.harness.planted:dies")
    assert again.exit_code == 1
    assert again.stdout.startswith(f"reproduced {path.stem} ")
    assert again.stdout.splitlines()[1] == "  ended its process: exit code 17"
    assert here("replay", path).stdout.startswith(f"fixed {path.stem} ")


def test_a_fault_of_the_harness_ends_with_3_and_keeps_the_case(tmp_path: Path) -> None:
    result = fuzz(tmp_path, "--checkpointer", "tests.harness.planted:breaks")
    assert result.exit_code == 3
    assert "HarnessFault: planted" in result.stderr
    (path,) = (tmp_path / "corpus" / "faults").iterdir()
    assert corpus.load(path).why.endswith("HarnessFault: planted")
    assert f"replay {path}" in result.stderr


def test_an_interrupted_campaign_has_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "run", lambda _plan, _on_progress: Outcome(interrupted=True))
    assert fuzz(tmp_path).exit_code == 130


def test_a_campaign_without_a_case_has_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "run", lambda _plan, _on_progress: Outcome())
    result = fuzz(tmp_path, "--seconds", "1")
    assert result.exit_code == 2
    assert "no case was judged" in result.stderr


def test_time_alone_bounds_a_campaign_that_names_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    def take_note(plan: Plan, _on_progress: object) -> Outcome:
        plans.append(plan)
        return Outcome()

    monkeypatch.setattr(workers, "run", take_note)
    for options in (["--seconds", "9"], [], ["--seconds", "9", "--cases", "7"]):
        here("fuzz", *options, "--corpus", tmp_path)
    assert [plan.cases for plan in plans] == [10**9, 2000, 7]


def test_auto_means_as_many_workers_as_the_gpus_have_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    def take_note(plan: Plan, _on_progress: object) -> Outcome:
        plans.append(plan)
        return Outcome()

    monkeypatch.setattr(workers, "run", take_note)
    monkeypatch.setattr(Target, "check", lambda _target: "cuda")
    monkeypatch.setattr(gpus, "cores", lambda: 16)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([Device("GPU-a", free=6 * GIB)]))
    result = invoke("fuzz", "--corpus", tmp_path)
    assert [plan.workers for plan in plans] == [3]
    assert "te-harness: shares 1 GPU (NVIDIA H200), 6 of 140 GiB free" in result.stderr
