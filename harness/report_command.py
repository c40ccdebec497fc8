"""The command ``te-harness report``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.exits import FAULT, HELD, VIOLATED
from harness.options import PATH


@click.command()
@click.argument("folder", type=PATH)
@click.option("--markdown", "markdown_file", type=PATH, help="A new file for the report as Markdown.")
@click.option("--html", "html_file", type=PATH, help="A new file for it as one page of HTML.")
def report(folder: Path, markdown_file: Path | None, html_file: Path | None) -> int:
    """Summarise a run, or several, from the events that were recorded in a folder.

    Without an option for a file, the report is printed as Markdown.
    """
    from harness import files
    from harness.document_html import html
    from harness.document_markdown import markdown
    from harness.run_report import blocks, verdict
    from harness.run_summary import summarise

    files.check_free(markdown_file, html_file)
    summary = summarise(folder)
    told = blocks(summary)
    if markdown_file is not None:
        files.write_new(markdown_file, markdown(told).encode())
    if html_file is not None:
        files.write_new(html_file, html(verdict(summary), told))
    click.echo(verdict(summary) if markdown_file or html_file else markdown(told))
    if summary.findings:
        return VIOLATED
    return FAULT if summary.faults else HELD
