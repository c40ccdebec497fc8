"""The command ``te-harness replay``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.errors import CannotRunHere
from harness.exits import FAULT, VIOLATED, complain, quiet
from harness.options import PATH, case_timeout_option, target_options
from harness.target import Target

if TYPE_CHECKING:
    from harness.corpus import SavedCase


@click.command()
@click.argument("cases", nargs=-1, required=True, type=PATH)
@click.option(
    "--corpus", "folder", type=PATH, default=Path("corpus"), help="Where a fingerprint is looked for."
)
@click.option("--prune", is_flag=True, help="Remove the files of cases that are fixed.")
@case_timeout_option
@target_options
def replay(cases: tuple[Path, ...], folder: Path, case_timeout: float, *, prune: bool, **target: Any) -> int:
    """Judge saved cases again: files, folders of them, or fingerprints.

    Each is reproduced, fixed, changed (it fails in another way), or cannot run here; one that was saved for
    no failure held, or is violated. A case that was saved because it ended its process is judged in a
    process of its own. Where the harness fails on a case, the others are judged all the same, and it ends
    with 3.
    """
    wanted = Target(**target)
    from harness import corpus
    from harness.replay import find

    files = [file for name in cases for file in corpus.load_files(find(name, folder))]
    wanted.check()
    from harness.replay import FAILS, Replayer, became
    from harness.report import replay_lines

    failed = refused = faulty = 0
    with quiet(), Replayer(wanted, case_timeout) as replayer:
        for path, saved in files:
            try:
                answer = replayer.judge(saved)
            except CannotRunHere as error:
                refused = complain(f"cannot run here: {saved.case.fingerprint}: {error}", error.exit_code)
                continue
            except Exception as error:
                # One case on which the harness fails keeps nobody from the others.
                told = f"the harness failed: {saved.case.fingerprint}: {type(error).__name__}: {error}"
                faulty = complain(told.splitlines()[0], FAULT)
                continue
            word = became(saved, answer)
            failed += word in FAILS
            click.echo("\n".join(replay_lines(saved, answer, word)))
            if prune and word == "fixed":
                _remove(path, saved, replayer.where)
    return faulty or (VIOLATED if failed else refused)


def _remove(path: Path, saved: SavedCase, where: dict[str, str]) -> None:
    """Remove the file of a fixed case, unless it was judged in another way than it was saved."""
    from harness import files
    from harness.replay import obstacle

    why = obstacle(saved, where)
    if why is None:
        files.remove(path)
    click.echo(f"  removed {path}" if why is None else f"  kept: {why}")
