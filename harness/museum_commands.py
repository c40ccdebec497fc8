"""The command ``museum``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import CannotRunHere, HarnessFault
from harness.exits import HELD, VIOLATED
from harness.options import PATH

if TYPE_CHECKING:
    from harness.survey import Rows


@click.command()
@click.option("--corpus", type=PATH, default=Path("corpus/museum"), help="Where the cases are.")
@click.option("--json", "json_file", type=PATH, help="A new file for all that was found.")
@click.option("--markdown", "markdown_file", type=PATH, help="A new file for the page of the documents.")
def museum(corpus: Path, json_file: Path | None, markdown_file: Path | None) -> int:
    """Judge the cases of TE's historical bugs under every release, as installed.

    Ends with 1 where one does not come out as museum.toml says. The page of the documents is written only
    where all do.
    """
    from harness import files, releases, survey
    from harness import museum as exhibits
    from harness import museum_report as reports

    bugs = exhibits.load()
    cases = exhibits.load_cases(bugs, corpus)
    files.check_free(json_file, markdown_file)

    def tell(rows: Rows) -> None:
        violated = sum(row.status == "violated" for row in rows)
        judged = sum(row.judged for row in rows)
        click.echo(f"te-harness: {rows[0].release} {violated} of {judged} cases violated", err=True)

    surveyed = survey.judge(cases, releases.KNOWN, exhibits.TE_MODE, tell)
    if not any(row.judged for rows in surveyed for row in rows):
        raise CannotRunHere(f"no case was judged; {surveyed[-1][0].release}: {surveyed[-1][0].reason}")
    found = {(bug.id, row.release): row for rows in surveyed for bug, row in zip(bugs, rows, strict=True)}
    differences = exhibits.differences(bugs, found)
    if json_file is not None:
        files.write_new(json_file, reports.museum_json(bugs, cases, found, differences))
    if markdown_file is not None and not differences:
        files.write_new(markdown_file, reports.markdown(bugs, cases).encode())
    click.echo("\n".join([*reports.table_lines(bugs, found), *reports.difference_lines(differences)]))
    for difference in differences:
        # No verdict is no finding: of a case that could not be judged it is not known how it does.
        if not difference.found.judged:
            told = f"{difference.bug} under {difference.found.release}: {difference.found.reason}"
            raise (HarnessFault if difference.found.status == "failed" else CannotRunHere)(told)
    return VIOLATED if differences else HELD
