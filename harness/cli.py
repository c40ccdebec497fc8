"""The command ``te-harness``: doctor, record, compare, and those of other modules.

torch and Transformer Engine take seconds to import, so each command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

import click

from harness import (
    bisect_command,
    explain_command,
    finds_command,
    fuzz_command,
    known_issues_commands,
    minimize_command,
    museum_commands,
    mutant_commands,
    replay_command,
    report_command,
    reproduce_command,
)
from harness.errors import CannotRunHere
from harness.exits import HELD, VIOLATED, Group, quiet
from harness.files import cache_folder
from harness.options import (
    PATH,
    SEED,
    backend_option,
    domain_of,
    domain_option,
    release_option,
    target_options,
)
from harness.target import Target


@click.group("te-harness", cls=Group, no_args_is_help=False, context_settings={"show_default": True})
def main() -> None:
    """Compare te.checkpoint with direct execution under FP8, on generated cases.

    Exit codes: 0 all held, 1 violations, 2 bad input or usage, 3 a fault of the harness itself,
    125 cannot run here, 130 interrupted.
    """
    # Hypothesis keeps a cache in the current folder unless told otherwise; the user asked for none there.
    with contextlib.suppress(CannotRunHere):
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_folder() / "hypothesis"))


# --- doctor ------------------------------------------------------------------------------------------


@main.command()
@release_option
@backend_option
def doctor(**target: Any) -> int:
    """Say what is installed, which backend runs here and why, and what TE lacks of the fix."""
    from harness.doctor import examine
    from harness.report import table

    with quiet():
        diagnosis = examine(Target(**target).backend)
    table(diagnosis.rows)
    click.echo(diagnosis.verdict)
    return HELD if diagnosis.healthy else CannotRunHere.exit_code


# --- record and compare ------------------------------------------------------------------------------


@main.command()
@click.argument("out", type=PATH)
@click.option("--cases", type=click.IntRange(min=1), help="How many cases to draw.")
@click.option("--seed", type=SEED, help="Random if not given, and always printed.")
@click.option(
    "--from", "source", type=PATH, help="A record, a saved case or a folder of saved cases to judge."
)
@domain_option
@target_options
def record(
    out: Path, cases: int | None, seed: int | None, source: Path | None, domain: str, **target: Any
) -> int:
    """Judge cases and write the verdicts to the new file OUT, to be compared with another record's."""
    if (cases is None) == (source is None):
        raise click.UsageError("give either --cases, for cases to draw, or --from, for cases that there are.")
    from harness import files, report
    from harness import record as records

    files.check_free(out)
    wanted = Target(**target)
    chosen = domain_of(domain)
    given = [] if source is None else records.load_cases(source)
    wanted.check()
    with quiet():
        session = wanted.open()
        if cases is not None:
            seed = secrets.randbits(32) if seed is None else seed
            click.echo(f"te-harness: seed {seed}", err=True)
            given = records.draw(chosen.strategy(), cases, seed)
        with report.Progress(len(given)) as progress:
            judged = records.judge(session, given, wanted.where(session), progress)
    records.save(out, judged)
    violated = sum(entry.violated for entry in judged.entries)
    refused = sum(bool(entry.lacks) for entry in judged.entries)
    not_run = f", {refused} not run for what this release lacks" if refused else ""
    click.echo(f"{out}: {len(judged.entries)} cases, {violated} of them violated{not_run}")
    return HELD


@main.command()
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
def compare(first: Path, second: Path) -> int:
    """Compare two records of the same cases: verdicts, errors, FIFO lengths and order of events."""
    from harness import record as records
    from harness.report import disagreement_lines

    mine, other = records.load(first), records.load(second)
    found = records.compare(mine, other)
    for disagreement in found:
        click.echo("\n".join(disagreement_lines(disagreement)))
    click.echo(f"{len(mine.entries) - len(found)} of {len(mine.entries)} cases agree")
    return VIOLATED if found else HELD


main.add_command(bisect_command.bisect)
main.add_command(explain_command.explain)
main.add_command(finds_command.finds)
main.add_command(fuzz_command.fuzz)
main.add_command(known_issues_commands.known_issues)
main.add_command(minimize_command.minimize)
main.add_command(replay_command.replay)
main.add_command(report_command.report)
main.add_command(reproduce_command.reproduce)
main.add_command(museum_commands.museum)
main.add_command(mutant_commands.mutants)
main.add_command(mutant_commands.sensitivity)
