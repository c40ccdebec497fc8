"""The command ``te-harness``: fuzz, replay, doctor, record, compare, and those of other modules.

torch and Transformer Engine take seconds to import, so each command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import (
    bisect_command,
    explain_command,
    known_issues_commands,
    minimize_command,
    museum_commands,
    mutant_commands,
    replay_command,
    reproduce_command,
)
from harness.errors import CannotRunHere, HarnessError, InvalidInput
from harness.exits import HELD, INTERRUPTED, VIOLATED, Group, complain, quiet
from harness.files import cache_folder
from harness.options import (
    PATH,
    SEED,
    backend_option,
    case_timeout_option,
    domain_option,
    finite,
    number_or_auto,
    release_option,
    target_options,
)
from harness.target import Target

if TYPE_CHECKING:
    from harness.corpus import SavedCase
    from harness.plan import Outcome, Plan
    from strategies.domains import Domain

DEFAULT_CASES = 2000
_UNLIMITED = 10**9


@click.group("te-harness", cls=Group, no_args_is_help=False, context_settings={"show_default": True})
def main() -> None:
    """Compare te.checkpoint with direct execution under FP8, on generated cases.

    Exit codes: 0 all held, 1 violations, 2 bad input or usage, 3 a fault of the harness itself,
    125 cannot run here, 130 interrupted.
    """
    # Hypothesis keeps a cache in the current folder unless told otherwise; the user asked for none there.
    with contextlib.suppress(CannotRunHere):
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_folder() / "hypothesis"))


# --- fuzz --------------------------------------------------------------------------------------------


@main.command()
@domain_option
@click.option(
    "--cases", type=click.IntRange(min=1), help=f"{DEFAULT_CASES}, or as many as fit into --seconds."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    help="Draw no further case after this time; what failed is still shrunk.",
)
@click.option("--workers", callback=number_or_auto, default="auto", help="Processes, or auto: one per core.")
@case_timeout_option
@click.option("--seed", type=SEED, help="Random if not given, and always printed.")
@target_options
@click.option("--corpus", type=PATH, default=Path("corpus"), help="Where failing cases are saved.")
@click.option("--json", "json_file", type=PATH, help="A new file for the whole report.")
def fuzz(
    domain: str,
    cases: int | None,
    seconds: float | None,
    workers: int | None,
    case_timeout: float,
    seed: int | None,
    corpus: Path,
    json_file: Path | None,
    **target: Any,
) -> int:
    """Draw cases, judge each, and shrink, save and report what fails."""
    _domain(domain)
    if json_file is not None:
        from harness import files

        files.check_free(json_file)
    plan = _plan(Target(**target), domain, cases, seconds, workers, case_timeout, seed, corpus)
    from harness import workers as processes
    from harness.report import Progress

    click.echo(f"te-harness: seed {plan.seed}", err=True)
    with Progress(None if plan.cases == _UNLIMITED else plan.cases) as progress:
        outcome = processes.run(plan, progress)
    return _conclude(plan, outcome, corpus, json_file)


def _plan(
    target: Target,
    domain: str,
    cases: int | None,
    seconds: float | None,
    workers: int | None,
    case_timeout: float,
    seed: int | None,
    corpus: Path,
) -> Plan:
    from harness import files
    from harness import workers as processes
    from harness.plan import Plan

    files.check_folder(corpus)
    target.check()
    cases = cases or (DEFAULT_CASES if seconds is None else _UNLIMITED)
    return Plan(
        target=target,
        domain=domain,
        seed=secrets.randbits(32) if seed is None else seed,
        cases=cases,
        seconds=seconds,
        workers=processes.useful_workers(workers or processes.default_workers(), cases),
        case_timeout=case_timeout,
    )


def _conclude(plan: Plan, outcome: Outcome, corpus: Path, json_file: Path | None) -> int:
    """Save and show what came of a campaign, and return the exit code."""
    from harness import files, report

    # Files first: whoever reads the output may stop reading.
    saved = {kind: _save(corpus, found) for kind, found in sorted(outcome.found.items())}
    # Apart: a folder of cases is replayed in one process, which any of these would end.
    crashes = {name: _save(corpus / "crashes", found) for name, found in outcome.crashed.items()}
    unwritten: HarnessError | None = None
    if json_file is not None:
        try:
            files.write_new(json_file, report.campaign_json(plan, outcome, saved, crashes))
        except HarnessError as error:
            # Somebody took the name meanwhile: what was found is shown all the same.
            unwritten = error
    if outcome.tally.drawn or outcome.crashed:
        report.summary(plan, outcome)
    for kind, path in saved.items():
        command = plan.target.replay_command(path) if path else None
        click.echo(f"\n{kind}\n{report.failure_text(outcome.found[kind], path, command)}")
    for name, path in crashes.items():
        command = plan.target.replay_command(path) if path else None
        found = outcome.crashed[name]
        click.echo(f"\n{found.why}\n{report.failure_text(found, path, command)}")
    if outcome.fault is not None:
        _keep_faulty_case(plan, outcome, corpus)
        raise outcome.fault
    if unwritten is not None:
        raise unwritten
    return _exit_code(plan, outcome)


def _exit_code(plan: Plan, outcome: Outcome) -> int:
    if outcome.tally.violations or outcome.crashed:
        return VIOLATED
    if outcome.interrupted:
        return INTERRUPTED
    if not outcome.tally.cases and outcome.tally.lacking:
        raise CannotRunHere("this Transformer Engine can run none of the cases drawn: use a newer release.")
    if not outcome.tally.cases:
        raise InvalidInput(f"no case was judged in {plan.seconds} seconds; give it more --seconds.")
    return HELD


def _save(folder: Path, saved: SavedCase) -> Path | None:
    """Save a case; where that fails, say so and go on, since what was found must still be shown."""
    from harness import corpus

    try:
        return corpus.save(folder, saved)
    except HarnessError as error:
        complain(str(error), error.exit_code)
        return None


def _keep_faulty_case(plan: Plan, outcome: Outcome, folder: Path) -> None:
    from harness import corpus

    if outcome.faulty_case is None:
        return
    found = corpus.Found(seed=plan.seed, domain=plan.domain)
    why = f"the harness failed: {outcome.fault}"
    saved = corpus.SavedCase(case=outcome.faulty_case, why=why, where=outcome.where, found=found)
    path = _save(folder / "faults", saved)
    if path is not None:
        click.echo(f"the case is saved; replay with: {plan.target.replay_command(path)}", err=True)


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
    chosen = _domain(domain)
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
main.add_command(known_issues_commands.known_issues)
main.add_command(minimize_command.minimize)
main.add_command(replay_command.replay)
main.add_command(reproduce_command.reproduce)
main.add_command(museum_commands.museum)
main.add_command(mutant_commands.mutants)
main.add_command(mutant_commands.sensitivity)


# --- Shared ------------------------------------------------------------------------------------------


def _domain(name: str) -> Domain:
    from strategies.domains import DOMAINS

    if name not in DOMAINS:
        raise InvalidInput(f"there is no domain {name!r}: choose one of {', '.join(sorted(DOMAINS))}.")
    return DOMAINS[name]
