"""The command ``explain``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from harness.exits import HELD, VIOLATED
from harness.options import PATH, target_options
from harness.target import Target


@click.command()
@click.argument("path", metavar="CASE", type=PATH)
@click.option("--html", "html_file", type=PATH, help="A new file for the same as a page with a picture.")
@target_options
def explain(path: Path, html_file: Path | None, **target: Any) -> int:
    """Judge a saved case and show which recompute took whose snapshot.

    A table has a row for each FP8 module in a region and time to the right: what is pushed on the module's
    queue, what is popped, and what is left at the end. Ends with 0 where the case held, with 1 where not.
    """
    wanted = Target(**target)
    from harness import corpus, files

    case = corpus.load(path).case
    files.check_free(html_file)
    wanted.check()
    from harness import timeline_html, timeline_terminal
    from harness.report import violation_lines
    from harness.sentence import describe
    from harness.story import tell
    from harness.timeline import make_timeline
    from harness.trace import Closeup

    # Odd cases make torch and TE utter many warnings.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = wanted.open()
        verdict, trace = session.examine(case, Closeup())
    timeline = make_timeline(case, trace, verdict)
    if html_file is not None:
        files.write_new(html_file, timeline_html.page(case, timeline, wanted.where(session)))
    click.echo(f"{'held' if verdict.held else 'violated'} {case.fingerprint} {describe(case)}\n")
    timeline_terminal.print_timeline(timeline)
    click.echo()
    click.echo("\n".join(files.printable(line) for line in tell(timeline)))
    click.echo("\n".join(violation_lines(verdict.violations)), nl=not verdict.held)
    return HELD if verdict.held else VIOLATED
