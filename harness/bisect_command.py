"""The command ``bisect``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.exits import HELD, VIOLATED
from harness.options import PATH, release, te_option


@click.command()
@click.argument("path", metavar="CASE", type=PATH)
@click.option("--good", metavar="VERSION", callback=release, help="A release in which the case holds.")
@click.option("--bad", metavar="VERSION", callback=release, help="A release in which it is violated.")
@te_option(default="installed")
@click.option("--json", "json_file", type=PATH, help="A new file for all that was found.")
def bisect(path: Path, good: str | None, bad: str | None, te_mode: str, json_file: Path | None) -> int:
    """Judge a saved case under every release, and name those that broke or fixed it.

    With --good and --bad, the releases from one to the other. Ends with 0 where the verdict changes, with 1
    where it does not.
    """
    from harness import bisect as bisection
    from harness import corpus, files, report, survey

    case = corpus.load(path).case
    wanted = bisection.chosen(good, bad)
    if json_file is not None:
        files.check_free(json_file)

    def tell(rows: survey.Rows) -> None:
        click.echo(f"te-harness: {rows[0].release} {rows[0].status}", err=True)

    rows = [row for (row,) in survey.judge([case], wanted, te_mode, tell)]
    found = bisection.changes(rows)
    if json_file is not None:
        files.write_new(json_file, report.bisect_json(case, te_mode, rows, found))
    report.table((row.release, report.row_text(row)) for row in rows)
    bisection.check_ends(rows, good, bad)
    bisection.check_judged(rows)
    click.echo("\n".join(report.change_lines(rows, found)))
    return HELD if found else VIOLATED
