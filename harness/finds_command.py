"""The command ``te-harness finds``."""

from __future__ import annotations

from pathlib import Path

import click

from harness.exits import HELD, warn
from harness.options import PATH, database_option, domain_of, domain_option


@click.command()
@domain_option
@database_option
@click.option("--save", "folder", type=PATH, help="Save them in this folder, as files to replay.")
def finds(domain: str, database: str | None, folder: Path | None) -> int:
    """List what campaigns have found and shared through a database.

    Those that ended their process are saved in a folder of their own, crashes, as by fuzz.
    """
    domain_of(domain)
    from harness import corpus, files
    from harness.database import open_database
    from harness.finds import Finds
    from harness.report import find_lines

    if folder is not None:
        files.check_folder(folder)
    shared = Finds(open_database(database, warn), warn).of(domain)
    for saved in shared:
        click.echo("\n".join(find_lines(saved)))
        if folder is not None:
            click.echo(f"  saved as {corpus.save(corpus.place(folder, saved), saved)}")
    if not shared:
        click.echo(f"nothing is shared of the domain {domain}")
    return HELD
