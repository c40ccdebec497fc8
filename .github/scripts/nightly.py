#!/usr/bin/env python3
"""A night on a GPU: contract and frontier for a time budget, and a folder with all that came of it.

Usage: nightly.py OUT SECONDS [PYTEST OPTIONS...]

For example, on any machine, from an environment in which the harness is installed:

    .github/scripts/nightly.py /tmp/night 60 --backend cpu --te installed

OUT is a new folder, or one with what is kept from nights before: its corpus, database and issues. SECONDS is
how long cases are drawn; shrinking, timelines and scripts come on top. The seed is printed; --seed N repeats
it. OUT/summary.md is for people, OUT/junit.xml for machines; OUT/timelines, OUT/scripts and OUT/issues hold a
file for each new finding. Ends with the status of pytest, or with 1 where there are new findings.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from children import LIMIT_PASSED, ROOT, harness
from finding import Target
from night import Night, duration

_TESTS = ("tests/contract", "tests/frontier")
_DOCTOR_LIMIT = 300.0
_SLACK = 1200.0
"""Seconds that pytest has beside half as long again as the drawing: to start, and to shrink."""


def main() -> int:
    """Run the night."""
    parser = argparse.ArgumentParser(usage="%(prog)s OUT SECONDS [PYTEST OPTIONS...]", allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=duration)
    parser.add_argument("--te", default="corrected")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--checkpointer")
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    asked, options = parser.parse_known_args()

    target = Target(te_mode=asked.te, backend=asked.backend, checkpointer=asked.checkpointer)
    night = Night(asked.out.resolve())
    night.notes += [f"Seed {asked.seed}; cases were drawn for {asked.seconds:g} seconds."]
    print(f"seed {asked.seed}", flush=True)

    doctor = harness("doctor", "--backend", asked.backend)
    night.children.run(doctor, night.doctor, _DOCTOR_LIMIT)
    night.replay_kept(night.corpus, target)
    status = _pytest(night, asked, target, options)
    night.examine(target)
    again = f"nightly.py OUT {asked.seconds:g} {' '.join(target.options)} --seed {asked.seed}"
    night.notes.append(f"To repeat it: `.github/scripts/{again}`")
    return night.conclude(f"Night on {asked.backend}, TE {asked.te}", status)


def _pytest(night: Night, asked: argparse.Namespace, target: Target, options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--hypothesis-profile=nightly"]
    command += ["--seconds", str(asked.seconds), "--seed", str(asked.seed), "--corpus", str(night.corpus)]
    command += ["--events", str(night.events), *night.database_options(), "--junitxml"]
    command += [str(night.out / "junit.xml"), *target.options, *options]
    command += [str(ROOT / folder) for folder in _TESTS]
    status = night.children.run(command, night.out / "pytest.log", asked.seconds * 1.5 + _SLACK)
    if status is None:
        return 0
    told = {0: "held", 1: "failed", LIMIT_PASSED: "was ended by its time limit"}
    night.notes.append(f"pytest {told.get(status, f'ended with {status}')} (`pytest.log`, `junit.xml`).")
    return status


if __name__ == "__main__":
    sys.exit(main())
