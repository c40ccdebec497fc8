"""The command ``known-issues``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.exits import HELD
from harness.options import PATH, number_or_auto, target_options
from harness.target import Target


@click.command("known-issues")
@click.option("--markdown", "markdown_file", type=PATH, help="A new file for the page of the documents.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=20, help="Runs to measure with, for the page.")
@click.option("--cases", type=click.IntRange(1, 100_000), default=1000, help="Cases of each run, at most.")
@click.option("--workers", default="auto", callback=number_or_auto, help="Processes, or auto.")
@target_options
def known_issues(
    markdown_file: Path | None,
    seeds: int,
    cases: int,
    workers: int | None,
    te_mode: str,
    backend: str,
    checkpointer: str | None,
    release: str | None,
) -> int:
    """List the known issues; for the page, measure how soon each is met from nothing."""
    from harness import files, rediscovery, report
    from harness import known_issues as known
    from harness import known_issues_report as reports
    from harness.gpus import cores, visible, workers_for

    issues = known.load()
    files.check_free(markdown_file)
    if markdown_file is None:
        click.echo("\n".join(reports.lines(issues)))
        return HELD
    target = Target(backend=backend, te_mode=te_mode, checkpointer=checkpointer, release=release)
    wanted = workers or workers_for(visible(target.check()), cores())
    with report.Progress(seeds, "seeds") as progress:
        found = rediscovery.measure(target, range(seeds), cases, wanted, lambda done: progress.show(done, ""))
    files.write_new(markdown_file, reports.markdown(issues, found, cases).encode())
    return HELD
