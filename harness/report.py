"""How campaigns, failures and diagnoses read. Formats only; decides nothing."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from harness import case as c
from harness.beyond import BEYOND
from harness.corpus import SavedCase
from harness.features import CATALOGUE
from harness.files import printable
from harness.outside import Ended
from harness.sentence import describe
from harness.violations import ORACLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.bisect import Change
    from harness.failure import Failure
    from harness.plan import Again, Outcome, Plan
    from harness.record import Disagreement
    from harness.replay import Became
    from harness.survey import Row
    from harness.tally import Tally
    from harness.verdict import Verdict
    from harness.violations import Violation

_SECONDS_BETWEEN_LINES = 10.0
JSON_FORMAT = 1
"""Version of the layouts of ``fuzz --json``, ``bisect --json`` and ``museum --json``."""


# --- Failures ----------------------------------------------------------------------------------------


def failure_text(failure: Failure | SavedCase, path: Path | None, command: str | None = None) -> str:
    """Return all that a person needs of a failure: sentence, case as data, violations, file, command."""
    found = failure.seen.violations if isinstance(failure, SavedCase) else failure.verdict.violations
    data = msgspec.json.format(c.encode(failure.case), indent=2).decode()
    lines = [describe(failure.case), data, *violation_lines(found)]
    lines.append("  not saved" if path is None else f"  saved as {path}")
    if path is not None:
        lines.append(f"  replay with: {command or f'te-harness replay {path}'}")
    return "\n".join(lines)


def violation_lines(violations: Iterable[Violation]) -> list[str]:
    """Return a line for each violation."""
    return [printable(f"  {violation}") for violation in violations]


def replay_lines(saved: SavedCase, answer: Verdict | Ended, word: Became) -> list[str]:
    """Return what has become of a saved case, and if it fails, why it was kept."""
    lines = [f"{word} {saved.case.fingerprint} {describe(saved.case)}"]
    if isinstance(answer, Ended):
        lines.append(printable(f"  ended its process: {answer.how}"))
    else:
        lines += violation_lines(answer.violations)
        error = answer.direct_error
        if error is not None and not answer.violations:
            lines.append(
                printable(f"  both runs raised {error.type} in step {error.step}: little was compared")
            )
    fails = isinstance(answer, Ended) or not answer.held
    if saved.where and (fails or word == "fixed"):
        lines.append(printable(f"  first seen with {_pairs(saved.where)}"))
    if fails and saved.why:
        lines.append(printable(f"  kept because: {saved.why}"))
    return lines


def find_lines(saved: SavedCase) -> list[str]:
    """Return what a shared case is, why it is kept and where it was seen."""
    lines = [f"{saved.case.fingerprint} {describe(saved.case)}"]
    lines += [printable(f"  {text}") for text in (saved.why, _pairs(saved.where)) if text]
    return lines


def disagreement_lines(disagreement: Disagreement) -> list[str]:
    """Return how two records differ in a case."""
    head = f"differ {disagreement.case.fingerprint} {describe(disagreement.case)}"
    return [head, *(printable(f"  {line}") for line in disagreement.differences)]


# --- A bisection --------------------------------------------------------------------------------------


def row_text(row: Row) -> str:
    """Return what became of a case under a release."""
    return printable(": ".join(filter(None, [row.status, ", ".join(row.kinds), row.reason])))


def change_lines(rows: Sequence[Row], found: Sequence[Change]) -> list[str]:
    """Return which releases changed the verdict, or what it is everywhere."""
    judged = [row for row in rows if row.judged]
    if not found:
        return [f"no change: {judged[0].status} in {_count(len(judged), 'release')} of {len(rows)}"]
    lines = []
    for change in found:
        was = "held" if change.what == "broken" else "violated"
        line = f"{change.what} by {change.release} ({was} in {change.before})"
        if change.unjudged:
            line += f", or by one without a verdict between them: {', '.join(change.unjudged)}"
        lines.append(line)
    return lines


def bisect_json(case: c.Case, te_mode: str, rows: Sequence[Row], found: Sequence[Change]) -> bytes:
    """Return all that came of a bisection as indented JSON."""
    data = {
        "format": JSON_FORMAT,
        "fingerprint": case.fingerprint,
        "case": c.plain(case),
        "te_mode": te_mode,
        "releases": rows,
        "changes": found,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


# --- A campaign --------------------------------------------------------------------------------------


class Progress:
    """Shows on standard error how far a campaign is: a bar on a terminal, else a line now and then."""

    def __init__(self, total: int | None, noun: str = "cases") -> None:
        self._console = Console(stderr=True)
        self._total = total
        self._noun = noun
        self._spoke = time.monotonic()
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(noun, total=total, note="starting")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._bar.stop()

    def __call__(self, tally: Tally) -> None:
        """Show a tally."""
        self.show(tally.drawn, _rate(tally))

    def show(self, done: int, note: str) -> None:
        """Show how much is done, and a word on it."""
        if not self._bar.disable:
            self._bar.update(self._task, completed=done, note=note)
        elif time.monotonic() - self._spoke > _SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            of = f" of {self._total}" if self._total else ""
            self._console.print(f"{done}{of} {self._noun}, {note}", highlight=False, soft_wrap=True)


def summary(plan: Plan, outcome: Outcome) -> None:
    """Print what a campaign covered, and in a line each what it ran on and whether all held."""
    tally, where = outcome.tally, outcome.where
    _counts("feature drawn", tally.features, CATALOGUE, tally.cases)
    if any(tally.features[name] for name in BEYOND):
        _counts("feature beyond the contract", tally.features, tuple(BEYOND), tally.cases)
    _counts("oracle evaluated", tally.oracles, ORACLES, tally.cases)
    if tally.known:
        _counts("known issue", tally.known, sorted(tally.known), tally.cases)
    rows = {
        "cases": f"{tally.cases} of the domain {plan.domain}, seed {plan.seed}{_shard(plan)}",
        "time": f"{tally.seconds:.1f} s, {_speed(tally)}, {_count(plan.workers, 'worker')}",
        "backend": f"{where.get('backend')} ({outcome.reason}), {where.get('device')}",
        "TE": f"{where.get('transformer_engine')}, {where.get('te_mode')}, {where.get('checkpointer')}",
        "violations": _pairs(tally.violations) or "none",
    }
    if outcome.crashed:
        rows["crashes"] = f"{_count(len(outcome.crashed), 'case')} that ended the process, or hung"
    if tally.raised:
        rows["raised"] = f"{_count(tally.raised, 'case')} in which both runs raised alike"
    if tally.known:
        rows["known"] = f"{_count(len(tally.known), 'issue')}, met {tally.known.total()} times"
    if tally.lacking:
        rows["not run"] = (
            f"{_count(tally.lacking.total(), 'more case')}; lacking here: {_pairs(tally.lacking)}"
        )
    if fates := _fates(outcome.again):
        rows["database"] = _pairs(fates)
    if outcome.interrupted:
        rows["interrupted"] = "before all cases were drawn"
    table(rows.items())


def _fates(again: Again) -> dict[str, int]:
    """Return what has become of how many shared finds, in words."""
    counts = {
        "still fail:": again.failed,
        "fixed and removed:": again.removed,
        "held and kept:": again.held,
        "cannot run here:": again.not_run,
        "not judged:": again.not_judged,
    }
    return {word: number for word, number in counts.items() if number}


def campaign_json(
    plan: Plan,
    outcome: Outcome,
    saved: Mapping[str, Path | None],
    crashes: Mapping[str, Path | None],
    shared: Mapping[str, Path | None],
) -> bytes:
    """Return the whole report of a campaign as indented JSON, given where its cases are saved."""
    tally, again = outcome.tally, outcome.again
    data: dict[str, Any] = {
        "format": JSON_FORMAT,
        "plan": plan,
        "where": outcome.where,
        "reason": outcome.reason,
        "cases": tally.cases,
        "lacking": dict(tally.lacking),
        "seconds": tally.seconds,
        "features": {name: tally.features[name] for name in CATALOGUE},
        "beyond": {name: tally.features[name] for name in BEYOND},
        "oracles": {name: tally.oracles[name] for name in ORACLES},
        "violations": dict(tally.violations),
        "known": dict(tally.known),
        "raised": tally.raised,
        "failures": [
            {
                "kind": kind,
                "sentence": describe(found.case),
                "saved": _text(saved.get(kind)),
                **_fields(found),
            }
            for kind, found in sorted(outcome.found.items())
        ],
        "crashes": [
            {"sentence": describe(found.case), "saved": _text(crashes.get(name)), **_fields(found)}
            for name, found in outcome.crashed.items()
        ],
        "database": {
            "failed": again.failed,
            "removed": again.removed,
            "held": again.held,
            "not_run": again.not_run,
            "not_judged": again.not_judged,
            "failures": [
                {
                    "kind": kind,
                    "sentence": describe(again.failing[kind].case),
                    "saved": _text(path),
                    **_fields(again.failing[kind]),
                }
                for kind, path in shared.items()
            ],
        },
        "interrupted": outcome.interrupted,
        "fault": _text(outcome.fault),
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


# --- Pieces ------------------------------------------------------------------------------------------


def table(rows: Iterable[tuple[str, str]]) -> None:
    """Print pairs of a name and a text, aligned."""
    pairs = list(rows)
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        Console().print(f"{name:{width}}  {text}", markup=False, highlight=False, soft_wrap=True)


def _counts(title: str, counted: Counter[str], names: Sequence[str], total: int) -> None:
    console = Console()
    grid = Table(title, "cases", "share", box=box.SIMPLE if console.is_terminal else None)
    for column in grid.columns[1:]:
        column.justify = "right"
    for name in names:
        share = f"{counted[name] / total:.1%}" if total else ""
        grid.add_row(name, str(counted[name]), share, style=None if counted[name] else "dim")
    console.print(grid)
    console.print()


def _shard(plan: Plan) -> str:
    index, of = plan.shard
    return "" if of == 1 else f", shard {index} of {of}"


def _rate(tally: Tally) -> str:
    return f"{_speed(tally)}, violations: {_pairs(tally.violations) or 'none'}"


def _speed(tally: Tally) -> str:
    speed = tally.cases / tally.seconds if tally.seconds else 0.0
    return f"{speed:.1f} cases per second"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _pairs(pairs: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs.items())


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _fields(saved: SavedCase) -> dict[str, Any]:
    return msgspec.structs.asdict(saved)
