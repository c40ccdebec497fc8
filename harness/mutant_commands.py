"""The commands ``mutants`` and ``sensitivity``."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.exits import HELD, INTERRUPTED, VIOLATED
from harness.options import PATH, SEED, cpu_release_option, number_or_auto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.journal import Journal
    from harness.mutants import Mutant
    from harness.sensitivity import Outcome, Plan
    from harness.trial import Finished

_DEFAULT_CASES = 500
_MOST_CASES = 100_000
"""They are drawn and kept in memory by every worker."""
_OF_TE = ("named:*", "pytorch/*")


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("--diff", is_flag=True, help="Show what each changes.")
@cpu_release_option
def mutants(patterns: tuple[str, ...], *, diff: bool) -> int:
    """List the mutants of the installed TE and of the correction: those whose ids match, or all.

    A pattern has * and ? for any letters: 'pytorch/distributed.py:checkpoint:*'.
    """
    from harness.mutants import matching
    from harness.sensitivity_report import listing

    listing(matching(patterns), diff=diff)
    return HELD


@click.command()
@click.option("--mutants", "patterns", multiple=True, help="Those whose ids match; all of TE if not given.")
@click.option(
    "--sample", type=click.IntRange(min=1), help="Only about so many, spread evenly, and those with names."
)
@click.option(
    "--cases", type=click.IntRange(1, _MOST_CASES), default=_DEFAULT_CASES, help="Cases to try each on."
)
@click.option("--seed", type=SEED, default=0, help="Which cases these are.")
@click.option("--workers", callback=number_or_auto, default="auto", help="Processes, or auto: one per core.")
@click.option("--json", "json_file", type=PATH, help="A new file for the whole report.")
@click.option("--markdown", "markdown_file", type=PATH, help="A new file for the page of the documents.")
@click.option("--from", "source", type=PATH, help="Try nothing: a report from --json, to be shown again.")
@cpu_release_option
def sensitivity(
    patterns: tuple[str, ...],
    sample: int | None,
    cases: int,
    seed: int,
    workers: int | None,
    json_file: Path | None,
    markdown_file: Path | None,
    source: Path | None,
) -> int:
    """Try every mutant of TE's recompute code, on the CPU backend: which does the contract kill?

    A campaign that was interrupted goes on where it was when it is started again. The mutants of our own
    correction, 'harness/correction.py:*', need a release that lacks what it mends. Exits with 1 where a
    mutant survives without a reason in survivors.toml, or a reason no longer holds.
    """
    from harness import backends, files, survivors
    from harness import sensitivity as campaigns
    from harness import sensitivity_report as reports
    from harness.gpus import cores
    from harness.mutants import matching
    from harness.mutants import mutants as all_mutants

    files.check_free(json_file, markdown_file)
    backends.choose("cpu")
    known = survivors.load(backends.te_version())
    started = time.monotonic()
    journal = None
    if source is not None:
        plan, outcome = reports.load(source)
    else:
        chosen = _spread(matching(patterns or _OF_TE), sample)
        plan = campaigns.Plan(
            mutants=tuple(mutant.id for mutant in chosen),
            seed=seed,
            cases=cases,
            workers=min(workers or cores(), len(chosen)),
        )
        outcome, journal = _run(plan)
    complaints = survivors.complaints(outcome.trials, known, all_mutants())
    # Where it was interrupted no report is written: the same command goes on, and finds its files free.
    if json_file is not None and not outcome.interrupted:
        files.write_new(json_file, reports.campaign_json(plan, outcome, known, complaints))
    if markdown_file is not None and not outcome.interrupted and outcome.fault is None:
        files.write_new(markdown_file, reports.markdown(plan, outcome, known).encode())
    reports.summary(plan, outcome, known, time.monotonic() - started)
    for complaint in complaints:
        click.echo(complaint)
    if outcome.fault is not None:
        raise outcome.fault
    if outcome.interrupted:
        return INTERRUPTED
    if journal is not None:
        # Only now: what was found is where the user wants it.
        journal.forget()
    return VIOLATED if complaints else HELD


def _spread(chosen: Sequence[Mutant], sample: int | None) -> list[Mutant]:
    """Return so many of the mutants, evenly spread; a named one always belongs to them."""
    named = [mutant for mutant in chosen if mutant.id.startswith("named:")]
    others = [mutant for mutant in chosen if not mutant.id.startswith("named:")]
    if sample is None or sample >= len(chosen):
        return [*named, *others]
    wanted = max(sample - len(named), 0)
    return [*named, *(others[number * len(others) // wanted] for number in range(wanted))]


def _run(plan: Plan) -> tuple[Outcome, Journal[Finished]]:
    """Run a campaign, going on where an interrupted one with the same plan and code was; also its journal."""
    from harness import backends
    from harness import sensitivity as campaigns
    from harness.journal import Journal, code_digest
    from harness.mutants import sources_digest
    from harness.report import Progress
    from harness.trial import Finished

    versions = [version(package) for package in ("torch", "hypothesis")]
    key = (
        campaigns.DOMAIN,
        plan.seed,
        plan.cases,
        plan.mutants,
        backends.te_version(),
        versions,
        code_digest(),
        sources_digest(),
    )
    journal: Journal[Finished] = Journal("sensitivity", key, Finished)
    with journal, Progress(len(plan.mutants), "mutants") as progress:

        def show(outcome: Outcome) -> None:
            killed = sum(trial.outcome == "killed" for trial in outcome.trials.values())
            progress.show(len(outcome.trials), f"{killed} killed")

        done = [line for line in journal.lines if line.mutant in plan.mutants]
        outcome = campaigns.run(plan, done, journal.add, show)
    return outcome, journal
