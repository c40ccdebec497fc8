"""How a sensitivity campaign reads: on the terminal, as JSON, as a Markdown table. Formats only."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from harness import case as c
from harness import files
from harness.backends import te_version
from harness.errors import InvalidInput
from harness.mutants import Mutant, mutants
from harness.report import table
from harness.sensitivity import DOMAIN, Outcome, Plan
from harness.trial import OTHER_WAYS, Sole, Trial
from harness.violations import ORACLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.survivors import Survivor

JSON_FORMAT = 1
"""Version of the layout of ``sensitivity --json``."""

_MAX_BYTES = 64 * 1024 * 1024


def listing(chosen: Iterable[Mutant], *, diff: bool) -> None:
    """Print mutants: id and description, with the diff where it is wanted."""
    for mutant in chosen:
        click.echo(f"{mutant.id}  {mutant.description}")
        if diff:
            click.echo(mutant.diff() + "\n")


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign in numbers."""

    mutants: int
    killed: int
    equivalent: int
    outside: int
    unexplained: int
    median_case: float | None
    worst_case: int | None


def statistics_of(trials: Mapping[str, Trial], known: Mapping[str, Survivor]) -> Statistics:
    """Return the numbers of a campaign, and over which case the kills came."""
    kills = [trial.case for trial in trials.values() if trial.case is not None]
    alive = [name for name, trial in trials.items() if trial.outcome != "killed"]
    kinds = Counter(known[name].kind if name in known else "unexplained" for name in alive)
    return Statistics(
        mutants=len(trials),
        killed=len(kills),
        equivalent=kinds["equivalent"],
        outside=kinds["outside"],
        unexplained=kinds["unexplained"],
        median_case=statistics.median(kills) if kills else None,
        worst_case=max(kills, default=None),
    )


def summary(plan: Plan, outcome: Outcome, known: Mapping[str, Survivor], seconds: float) -> None:
    """Print what came of a campaign."""
    numbers = statistics_of(outcome.trials, known)
    median, worst = _median(numbers), numbers.worst_case
    console = Console()
    for row in _oracle_rows(outcome):
        console.print("  ".join(f"{cell:<22}" for cell in row), markup=False, highlight=False, soft_wrap=True)
    console.print()
    rows = {
        "mutants": f"{numbers.mutants} of {len(plan.mutants)}",
        "cases": f"{plan.cases} of the domain {DOMAIN}, seed {plan.seed}",
        "killed": str(numbers.killed) + (f"; median case {median}, worst {worst}" if numbers.killed else ""),
        "survived": f"{numbers.equivalent} equivalent, {numbers.outside} outside the domain,"
        f" {numbers.unexplained} unexplained",
        "TE": f"{te_version()}, on the cpu backend",
        "time": f"{seconds:.0f} s, {plan.workers} workers",
    }
    if outcome.interrupted:
        rows["interrupted"] = "what was finished is kept; the same command goes on"
    table(rows.items())


def _oracle_rows(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return a row for each oracle: how many first kills it took part in, and where it was alone."""
    took_part = Counter(how for trial in outcome.trials.values() for how in trial.by)
    sole = outcome.sole_killer()
    rows = [("objected by", "mutants killed", "alone, in all cases, to")]
    ways = [*ORACLES, *(way for way in OTHER_WAYS if took_part[way])]
    return rows + [(way, str(took_part[way]), sole.get(way, "-")) for way in ways]


def campaign_json(
    plan: Plan, outcome: Outcome, known: Mapping[str, Survivor], complaints: Sequence[str]
) -> bytes:
    """Return the whole report of a campaign as indented JSON."""
    data: dict[str, Any] = {
        "format": JSON_FORMAT,
        "plan": plan,
        "where": outcome.where,
        "statistics": statistics_of(outcome.trials, known),
        "complaints": complaints,
        "trials": [outcome.trials[name] for name in plan.mutants if name in outcome.trials],
        "exhausted": list(outcome.sole.values()),
        "interrupted": outcome.interrupted,
        "fault": None if outcome.fault is None else str(outcome.fault),
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


class _Report(msgspec.Struct, frozen=True):
    """What is read back of a report; statistics and complaints are made anew."""

    format: int
    plan: Plan
    where: dict[str, str]
    trials: list[Trial]
    exhausted: list[Sole]
    interrupted: bool
    fault: str | None


def load(path: Path) -> tuple[Plan, Outcome]:
    """Return the campaign of a report that ``campaign_json`` wrote.

    Raises InvalidInput, which says in one line what is wrong with the file.
    """
    try:
        report = msgspec.json.decode(files.read(path, _MAX_BYTES), type=_Report)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(
            f"{path}: not a report of a sensitivity campaign: {files.quoted(error)}"
        ) from error
    if report.format != JSON_FORMAT:
        raise InvalidInput(f"{path}: reports of format {JSON_FORMAT} are known, not of {report.format}.")
    release = report.where.get("transformer_engine")
    if release != te_version():
        raise InvalidInput(f"{path}: a report of release {files.quoted(release)}; show it with --release.")
    if report.interrupted or report.fault is not None or {*report.plan.mutants} - {*mutants()}:
        raise InvalidInput(f"{path}: the campaign is not finished, or of other mutants; run it again.")
    trials = {trial.mutant: trial for trial in report.trials}
    sole = {sole.mutant: sole for sole in report.exhausted}
    return report.plan, Outcome(trials=trials, sole=sole, where=report.where)


# --- Markdown ----------------------------------------------------------------------------------------


_LEGEND = [
    "Small faults, mutants, planted one at a time in the code that serves recomputation, and what becomes",
    "of each: killed by the first case that fails, or not, and why. A mutant is equivalent where no case",
    "can tell it from the code, and outside where only cases could that the contract does not have. This",
    "page is written by `te-harness sensitivity --markdown`; the reasons stand in `harness/survivors.toml`.",
    "The rules that they name are the contract's, listed in `strategies/contract.py`.",
    "",
    "A mutant is named by file, function, operator and a number that counts within the function;",
    "`te-harness mutants ID --diff` shows it. Operators: `delete` a statement, `negate` a condition, `flip`",
    "a constant, `andor` exchanged, a `clone` or a context of a `with` dropped, `swap` two arguments; `pop`",
    "and `append` take from or add to the other end of a queue.",
]
_LEGEND_OF_ORACLES = [
    "The case is the number of the first of all drawn cases that fails under the mutant; every oracle that",
    "objects to it is counted, so the column adds up to more than the kills. An oracle is alone where no",
    "other objects to any of the cases; one such mutant is named. Some ways to be killed are no oracles:",
    "`direct run`, the mutant raises even without a checkpoint, which no case of the contract does;",
    "`fault`, it breaks what the harness needs of TE to judge; `start`, the correction cannot be applied.",
]


def _median(numbers: Statistics) -> str:
    return "-" if numbers.median_case is None else f"{numbers.median_case:g}"


def markdown(plan: Plan, outcome: Outcome, known: Mapping[str, Survivor]) -> str:
    """Return a page for the documents: the campaign in numbers, by oracle, and mutant by mutant."""
    numbers = statistics_of(outcome.trials, known)
    where = outcome.where
    median = _median(numbers)
    of_correction = all(mutants()[name].in_correction for name in plan.mutants)
    lines = [
        "# Sensitivity to faults of " + ("the correction" if of_correction else "Transformer Engine"),
        "",
        *_LEGEND,
        "",
        f"Transformer Engine {where.get('transformer_engine')}, {plan.cases} cases of the domain"
        f" {DOMAIN}, seed {plan.seed}, torch {where.get('torch')}, {where.get('backend')} backend.",
        "",
        "| mutants | killed | equivalent | outside the domain | unexplained | median case | worst case |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| {numbers.mutants} | {numbers.killed} | {numbers.equivalent} | {numbers.outside} |"
        f" {numbers.unexplained} | {median} | {numbers.worst_case} |",
        "",
        *_LEGEND_OF_ORACLES,
        "",
        *_markdown_table(_oracle_rows(outcome)),
    ]
    chosen = mutants()
    by_function: dict[tuple[str, str], list[Trial]] = {}
    for name in plan.mutants:
        if name in outcome.trials:
            key = ("named", "") if name.startswith("named:") else (chosen[name].file, chosen[name].function)
            by_function.setdefault(key, []).append(outcome.trials[name])
    for (file, function), trials in by_function.items():
        lines += ["", f"## {file} {function}".rstrip(), ""]
        header = ("mutant", "change", "outcome", "case", "by", "smallest, or why")
        lines += _markdown_table([header, *(_row(chosen[t.mutant], t, known) for t in trials)])
    return "\n".join(lines) + "\n"


def _row(mutant: Mutant, trial: Trial, known: Mapping[str, Survivor]) -> tuple[str, ...]:
    name = mutant.id if mutant.id.startswith("named:") else ":".join(mutant.id.split(":")[-2:])
    if trial.outcome == "killed":
        return name, mutant.description, "killed", str(trial.case), ", ".join(trial.by), _size(trial.smallest)
    why = known.get(mutant.id)
    outcome = "unexplained" if why is None else why.kind
    return name, mutant.description, outcome, "", "", "" if why is None else why.reason


def _size(case: c.Case | None) -> str:
    if case is None:
        return ""
    modules = sum(isinstance(node, c.Module) for node in c.walk(case.graph))
    iterations = sum(isinstance(step, c.Forward) for step in case.schedule)
    evaluations = sum(isinstance(step, c.Evaluate) for step in case.schedule)
    parts = [_count(modules, "module"), _count(iterations, "iteration")]
    return ", ".join(parts + [_count(evaluations, "evaluation")] * (evaluations > 0))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    divider = ["---"] * len(head)
    return [f"| {' | '.join(row)} |" for row in (head, divider, *rest)]
