"""The command ``reproduce``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.exits import HELD
from harness.options import PATH, backend_option, release_option
from harness.te_mode import INSTALLED

if TYPE_CHECKING:
    from harness import case as c
    from harness.corpus import Seen
    from harness.target import Target


@click.command()
@click.argument("path", metavar="CASE", type=PATH)
@click.option("--output", type=PATH, help="A new file for the script, which is printed otherwise.")
@release_option
@backend_option
def reproduce(path: Path, output: Path | None, release: str | None, backend: str) -> int:
    """Write a saved case as a script that needs torch and Transformer Engine alone.

    It shows what was seen when the case was saved, prints what is expected and what is observed, and ends
    with 1 where the fault shows, else with 0. A case without anything seen is judged first, on
    Transformer Engine as installed.
    """
    from harness import corpus, files, reproducer
    from harness.target import Target

    files.check_free(output)
    saved = corpus.load(path)
    seen = saved.seen
    if not seen.violations:
        seen = _judged(saved.case, Target(backend=backend, te_mode=INSTALLED, release=release))
    script = reproducer.script(saved.case, seen)
    if output is None:
        click.echo(script, nl=False)
    else:
        files.write_new(output, script.encode())
    return HELD


def _judged(case: c.Case, target: Target) -> Seen:
    from harness.corpus import seen_of

    target.check()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = target.open().judge(case)
    return seen_of(verdict)
