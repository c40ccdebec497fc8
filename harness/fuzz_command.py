"""The command ``te-harness fuzz``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from harness.errors import CannotRunHere, HarnessError, InvalidInput
from harness.exits import HELD, INTERRUPTED, VIOLATED, complain, quiet, warn
from harness.files import printable
from harness.options import (
    PATH,
    SEED,
    case_timeout_option,
    database_option,
    domain_of,
    domain_option,
    finite,
    number_or_auto,
    shard_of,
    target_options,
)
from harness.target import Target

if TYPE_CHECKING:
    from harness.campaign_events import CampaignEvents
    from harness.corpus import SavedCase
    from harness.finds import Finds
    from harness.plan import Again, Outcome, Plan

DEFAULT_CASES = 2000
_UNLIMITED = 10**9


@click.command()
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
@click.option(
    "--shard", callback=shard_of, default="1/1", metavar="I/N", help="Draw the I-th of N parts of the cases."
)
@click.option(
    "--workers", callback=number_or_auto, default="auto", help="Processes, or auto: by cores and GPUs."
)
@case_timeout_option
@click.option("--seed", type=SEED, help="Random if not given, and always printed.")
@target_options
@click.option("--corpus", type=PATH, default=Path("corpus"), help="Where failing cases are saved.")
@database_option
@click.option("--events", type=PATH, help="A folder in which what happens is recorded, for a report.")
@click.option("--json", "json_file", type=PATH, help="A new file for the whole report.")
def fuzz(
    domain: str,
    cases: int | None,
    seconds: float | None,
    shard: tuple[int, int],
    workers: int | None,
    case_timeout: float,
    seed: int | None,
    corpus: Path,
    database: str | None,
    events: Path | None,
    json_file: Path | None,
    **options: Any,
) -> int:
    """Draw cases, judge each, and shrink, save and report what fails.

    What others have found, and shared through the database, is judged first.
    """
    domain_of(domain)
    from harness import files
    from harness.gpus import cores, described, visible, workers_for

    files.check_free(json_file)
    files.check_folder(corpus)
    target = Target(**options)
    gpus = visible(target.check())
    from harness import workers as processes
    from harness.campaign_events import CampaignEvents
    from harness.database import open_database
    from harness.events import EventLog
    from harness.finds import Finds
    from harness.plan import Plan
    from harness.report import Progress

    finds = Finds(open_database(database, warn), warn)
    plan = Plan(
        target=target,
        domain=domain,
        seed=secrets.randbits(32) if seed is None else seed,
        cases=cases or (DEFAULT_CASES if seconds is None else _UNLIMITED),
        shard=shard,
        seconds=seconds,
        case_timeout=case_timeout,
    )
    useful = processes.useful_workers(workers or workers_for(gpus, cores()), plan)
    if not useful:
        raise InvalidInput(f"--shard {shard[0]}/{shard[1]}: of {plan.cases} cases none is left for it.")
    plan = msgspec.structs.replace(plan, workers=useful)
    click.echo(f"te-harness: seed {plan.seed}", err=True)
    if gpus:
        click.echo(f"te-harness: shares {described(gpus)}", err=True)
    total = None if plan.cases == _UNLIMITED else sum(size for _, size in plan.chunks)
    recorded = None if events is None else CampaignEvents(EventLog(events), plan, total)
    again = _judge_again(finds, plan)
    with Progress(total) as progress:

        def show(outcome: Outcome) -> None:
            progress(outcome.tally)
            if recorded is not None:
                recorded.follow(outcome)

        outcome = processes.run(plan, show)
    outcome.again = again
    return _conclude(plan, outcome, finds, corpus, json_file, recorded)


def _judge_again(finds: Finds, plan: Plan) -> Again:
    """Judge what others have found of the plan's domain and target."""
    from harness.again import concerning, judge_again
    from harness.plan import Again
    from harness.workers import interruptible

    shared = concerning(finds.of(plan.domain), plan.target)
    # Not even a process is started where there is nothing to judge.
    if not shared:
        return Again()
    click.echo(f"te-harness: judging what the database has first ({len(shared)})", err=True)
    with quiet(), interruptible():
        return judge_again(finds, shared, plan, warn)


def _conclude(
    plan: Plan,
    outcome: Outcome,
    finds: Finds,
    corpus: Path,
    json_file: Path | None,
    recorded: CampaignEvents | None,
) -> int:
    """Save, share and show what came of a campaign, and return the exit code."""
    from harness import report
    from harness.again import beside

    # Files first: whoever reads the output may stop reading.
    saved = {kind: _save(corpus, found) for kind, found in sorted(outcome.found.items())}
    crashes = {name: _save(corpus, found) for name, found in outcome.crashed.items()}
    own = [*outcome.found.values(), *outcome.crashed.values()]
    others = beside(outcome.again, own)
    shared = {kind: _save(corpus, found) for kind, found in sorted(others.items())}
    for found in own:
        finds.add(plan.domain, found)
    unwritten = _write(json_file, report.campaign_json(plan, outcome, saved, crashes, shared))
    if recorded is not None:
        recorded.conclude(outcome, saved, crashes, shared)
        unwritten = unwritten or recorded.problem
    if outcome.tally.drawn or outcome.crashed:
        report.summary(plan, outcome)
    for kind, path in saved.items():
        _show(plan, kind, outcome.found[kind], path)
    for name, path in crashes.items():
        _show(plan, outcome.crashed[name].why, outcome.crashed[name], path)
    for kind, path in shared.items():
        _show(plan, f"{kind} (from the database)", others[kind], path)
    if outcome.fault is not None:
        _keep_faulty_case(plan, outcome, corpus)
        raise outcome.fault
    return _exit_code(plan, outcome, unwritten)


def _write(path: Path | None, content: bytes) -> HarnessError | None:
    """Write a new file; where that fails, return the error: what was found is shown all the same."""
    from harness import files

    try:
        if path is not None:
            files.write_new(path, content)
    except HarnessError as error:
        return error
    return None


def _show(plan: Plan, title: str, saved: SavedCase, path: Path | None) -> None:
    """Print a failure or a crash, with the command that replays it."""
    from harness.report import failure_text

    command = plan.target.replay_command(path) if path else None
    click.echo(f"\n{printable(title)}\n{failure_text(saved, path, command)}")


def _exit_code(plan: Plan, outcome: Outcome, unwritten: HarnessError | None) -> int:
    if unwritten is not None:
        raise unwritten
    if outcome.tally.violations or outcome.crashed or outcome.again.failed:
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
        return corpus.save(corpus.place(folder, saved), saved)
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
