"""The command ``te-harness replay``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click

from harness.errors import CannotRunHere
from harness.exits import VIOLATED, complain, quiet
from harness.options import PATH, case_timeout_option, target_options
from harness.target import Target


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PATH)
@case_timeout_option
@target_options
def replay(paths: tuple[Path, ...], case_timeout: float, **target: Any) -> int:
    """Judge saved cases again: files, or folders of them.

    A case that was saved because it ended its process is judged in a process of its own.
    """
    wanted = Target(**target)
    from harness import corpus

    cases = [saved for path in paths for saved in corpus.load_all(path)]
    wanted.check()
    from harness.outside import Ended, Outside
    from harness.report import crash_lines, replay_lines

    violated = refused = 0
    opened = functools.cache(wanted.open)
    with quiet(), Outside(wanted, case_timeout) as outside:
        for saved in cases:
            judge = outside.judge if saved.seen.ending else opened().judge
            try:
                verdict = judge(saved.case)
            except CannotRunHere as error:
                refused = complain(f"not run: {saved.case.fingerprint}: {error}", error.exit_code)
                continue
            if isinstance(verdict, Ended):
                violated += 1
                lines = crash_lines(saved, verdict.how)
            else:
                violated += not verdict.held
                lines = replay_lines(saved, verdict)
            click.echo("\n".join(lines))
    return VIOLATED if violated else refused
