"""Runs commands in this process and in others, as the tests of several of them need it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from harness import backends
from harness import case as c
from harness.cli import main

ROOT = Path(__file__).parents[2]
CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
PLANTED = ("--checkpointer", "tests.harness.planted:no_recompute")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def here(*arguments: object) -> Result:
    """Invoke with the backend that is active in this process."""
    return invoke(*arguments, "--backend", backends.active().name)


def fuzz(folder: Path, *arguments: object, cases: int = 1) -> Result:
    """Run a small campaign; its first case is the simplest there is."""
    options = ("--cases", cases, "--seed", 5, "--workers", 1, "--corpus", folder / "corpus")
    return here("fuzz", *options, *arguments)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=120
    )


def complaint(result: Result) -> str:
    """Return the one line that a command that could not do its work has written."""
    (line,) = result.stderr.splitlines()
    assert line.startswith("te-harness: ")
    return line


def save_case(folder: Path) -> Path:
    path = folder / "case.json"
    path.write_bytes(c.encode(CASE))
    return path
