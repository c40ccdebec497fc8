"""The command ``te-harness report``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from harness.exits import FAULT, HELD, USAGE, VIOLATED
from harness.options import PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.run_summary import Verdict

_CODES: dict[Verdict, int] = {"held": HELD, "violated": VIOLATED, "nothing judged": USAGE, "fault": FAULT}


@click.command()
@click.argument("folder", type=PATH)
@click.option("--markdown", "markdown_file", type=PATH, help="A new file for the report as Markdown.")
@click.option("--html", "html_file", type=PATH, help="A new file for it as one page of HTML.")
def report(folder: Path, markdown_file: Path | None, html_file: Path | None) -> int:
    """Summarise a run, or several, from the events that were recorded in a folder.

    Without an option for a file, the report is printed as Markdown. Needs neither torch nor Transformer
    Engine. Ends with 0 where nothing new was found, 1 where something was, 2 where nothing was judged, and
    3 where the harness failed.
    """
    from harness import files
    from harness.document_html import html
    from harness.document_markdown import markdown
    from harness.run_report import blocks, verdict
    from harness.run_summary import summarise

    files.check_free(markdown_file, html_file)
    summary = summarise(folder)
    if markdown_file is not None:
        told = blocks(summary, _timelines(folder, markdown_file.parent))
        files.write_new(markdown_file, markdown(told).encode())
    if html_file is not None:
        told = blocks(summary, _timelines(folder, html_file.parent))
        files.write_new(html_file, html(verdict(summary), told))
    if markdown_file or html_file:
        click.echo(verdict(summary))
    else:
        click.echo(markdown(blocks(summary, _timelines(folder, Path()))), nl=False)
    return _CODES[summary.verdict]


def _timelines(folder: Path, beside: Path) -> Callable[[str], str | None]:
    """Return what finds the timeline of a case, for a page in the folder ``beside``.

    Timelines lie in a folder of that name, within the folder of the events or beside the page.
    """

    def find(fingerprint: str) -> str | None:
        for place in (folder, beside):
            path = place / "timelines" / f"{fingerprint}.html"
            if path.is_file():
                return quote(os.path.relpath(path, beside))
        return None

    return find
