"""``pytest`` as its users run it: what a case does to a process, ``--replay`` and ``--seconds``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import backends, corpus
from harness import case as c
from harness.corpus import SavedCase, Seen
from harness.violations import Violation
from tests.harness.commands import CASE, ROOT

TWO_SHARDS = """
import pytest
from strategies.domains import DOMAINS

@pytest.mark.parametrize("shard", range(2))
def test_property(check_property, shard):
    check_property(DOMAINS["contract"], shard)
"""
ONE_CASE = f"""
from harness import validity

def test_a_case(te_session):
    assert te_session.judge(validity.decode({c.encode(CASE)!r})).held

def test_another(te_session):
    pass
"""

CASE_TIMEOUT = {"cpu": 3, "cuda": 20}[backends.active().name]
"""Seconds, longer than the first case of a fresh process: on a GPU it loads kernels, and others may too."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project that has the harness's plugin, and nothing else."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["harness.pytest_plugin"]\n')
    (tmp_path / "test_shards.py").write_text(TWO_SHARDS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(project: Path, *arguments: object, checkpointer: str | None = None) -> tuple[int, str]:
    """Run pytest in a project; two cases in each of two shards."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--backend", backends.active().name]
    command += ["--seed", "1", *map(str, arguments)]
    if "--seconds" not in arguments:
        command += ["--cases", "192"]
    if checkpointer is not None:
        command += ["--checkpointer", f"tests.harness.planted:{checkpointer}"]
    ended = subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        check=False,
        timeout=180,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("checkpointer", "how", "dist"),
    [
        ("is_killed_once", "SIGKILL, or memory ran out", "load"),
        ("hangs_once", f"not at its end after {CASE_TIMEOUT} seconds", "worksteal"),
        ("loses_the_device_once", "CUDA error: planted", "worksteal"),
    ],
)
def test_a_case_that_ends_its_worker_is_named_and_its_test_goes_on_without_it(
    project: Path, checkpointer: str, how: str, dist: str
) -> None:
    code, output = run(
        project, "-n", 1, "--case-timeout", CASE_TIMEOUT, "--dist", dist, checkpointer=checkpointer
    )
    assert code == 1
    assert "1 failed, 2 passed" in output
    ((path, saved),) = corpus.load_folder(project / "corpus" / "crashes")
    assert saved.why == f"crash: {how}"
    assert saved.seen.ending == how
    assert saved.found is not None
    assert saved.where["backend"] == backends.active().name
    assert f"saved as {path}" in output
    assert "replay with: " in output


@pytest.mark.parametrize(
    ("checkpointer", "how"), [("hangs", "not at its end after 1 seconds"), ("loses_the_device", "planted")]
)
def test_without_workers_a_case_that_ends_its_process_is_named_and_the_run_is_over(
    project: Path, checkpointer: str, how: str
) -> None:
    code, output = run(project, "--case-timeout", 1, checkpointer=checkpointer)
    assert code == 1
    assert "With -n, a worker is replaced and the run goes on." in output
    # The one that was met, and perhaps what it was made smaller to.
    for path, saved in corpus.load_folder(project / "corpus" / "crashes"):
        assert how in saved.why
        assert f"saved as {path}" in output
    assert "passed" not in output


def test_a_test_that_ends_its_worker_is_not_run_again_and_again(project: Path) -> None:
    (project / "test_shards.py").write_text(ONE_CASE)
    code, output = run(project, "-n", 1, "--max-worker-restart", 2, checkpointer="leaves")
    assert code == 1
    assert "1 failed, 1 passed" in output


# --- Replay ---


def test_a_case_is_replayed_as_a_test(project: Path) -> None:
    found = Violation(oracle="pairing", message="popped another", iteration=0)
    corpus.save(project / "kept", SavedCase(case=CASE, seen=Seen(violations=(found,))))
    code, output = run(project, "-n", 1, "--replay", "kept")
    assert code == 0
    assert "1 passed" in output
    assert f"fixed {CASE.fingerprint} Linear in a reentrant region" in output
    code, output = run(project, "--corpus", "kept", "--replay", CASE.fingerprint[:8], checkpointer="refuses")
    assert code == 1
    assert f"changed {CASE.fingerprint}" in output
    assert "same errors" in output


def test_a_case_that_ended_its_process_is_replayed_in_one_of_its_own(project: Path) -> None:
    corpus.save(project / "kept", SavedCase(case=CASE, seen=Seen(ending="exit code 17")))
    code, output = run(project, "--replay", "kept", checkpointer="dies")
    assert code == 1
    assert f"reproduced {CASE.fingerprint}" in output
    assert "ended its process: exit code 17" in output


def test_a_replay_of_what_is_not_there_ends_with_2_and_one_line(project: Path) -> None:
    code, output = run(project, "--replay", "nowhere.json")
    assert code == 2
    assert "Exit: nowhere.json: there is no such file." in output


# --- Time ---


def test_time_ends_the_drawing_of_all_properties_together(project: Path) -> None:
    begun = time.monotonic()
    code, output = run(project, "--seconds", 4)
    assert code == 0
    assert "2 passed" in output
    assert time.monotonic() - begun > 4
