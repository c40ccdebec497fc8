"""Runs scripts that were made of cases, and says which of them end as the cases' verdicts have it.

On a machine with an H200, of cases drawn, and of scripts in a folder, each in a process without the harness:

    python -m tests.harness.script_agreement --draw 300 --seed 1 --backend cuda
    python -m tests.harness.script_agreement FOLDER --alone --jobs 8
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness import backends, corpus, record, reproducer
from harness import case as c
from harness.errors import InvalidInput
from harness.verdict import Verdict
from strategies.frontier import frontier

if TYPE_CHECKING:
    from harness.session import Session


class Ended(NamedTuple):
    """How a script ended, and what it wrote."""

    code: int
    output: str


def script(case: c.Case, verdict: Verdict) -> str:
    seen = corpus.seen_of(verdict)
    return reproducer.script(case, seen)


def run(path: Path, session: Session) -> Ended:
    """Run a script in this process, as if it were the first to use TE in it."""
    session.probe.reset()
    session.backend.seed(0)
    output = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:
            code = 99
            traceback.print_exc(limit=-2, file=output)
    return Ended(code, output.getvalue())


def run_alone(path: Path) -> Ended:
    """Run a script in a process of its own, on TE as installed."""
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)  # noqa: S603
    return Ended(ran.returncode, ran.stdout + ran.stderr[-500:])


def disagreements(cases: Iterable[c.Case], session: Session, folder: Path) -> Iterable[str]:
    """Yield a line for each case whose script does not end as its verdict has it."""
    for number, case in enumerate(cases):
        verdict = session.judge(case)
        kinds = ", ".join(verdict.signature) or "held"
        try:
            text = script(case, verdict)
        except InvalidInput as error:
            yield f"{number}: no script: {error}"
            continue
        path = folder / f"{number:03}.py"
        path.write_text(text)
        ended = run(path, session)
        if ended.code != (not verdict.held):
            yield f"{path}: {kinds}, but the script ended with {ended.code}: {ended.output[-500:]}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--jobs", type=int, default=4)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    if given.alone:
        paths = sorted(folder.glob("*.py"))
        with ThreadPoolExecutor(given.jobs) as pool:
            ended = dict(zip((path.stem for path in paths), pool.map(run_alone, paths), strict=True))
        print(json.dumps(ended, indent=1))
        return
    backend = backends.activate(given.backend)
    from harness.session import Session

    session = Session(backend, "installed")
    if not given.draw:
        ended = {path.stem: run(path, session) for path in sorted(folder.glob("*.py"))}
        print(json.dumps(ended))
        return
    cases = record.draw(frontier(), given.draw, given.seed)
    found = list(disagreements(cases, session, folder))
    print("\n".join([*found, f"{len(cases) - len(found)} of {len(cases)} agree; scripts in {folder}"]))


if __name__ == "__main__":
    main()
