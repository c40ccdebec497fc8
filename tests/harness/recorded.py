"""Recorded runs, as tests of summaries and reports make them up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import case as c
from harness import corpus
from harness.events import Counted, Ended, Event, EventLog, Failed, Started, Where, failed
from harness.violations import Violation
from tests.harness.commands import CASE

WHERE = {
    "backend": "cpu",
    "device": "emulated sm90",
    "transformer_engine": "2.20.2",
    "te_mode": "installed",
    "checkpointer": "te.checkpoint",
}
STARTED = Started(time=1000.0, run="fuzz", domains=("contract",), seed=7, cases=10, workers=2)
ENDED = Ended(time=1010.0)
LARGER = c.Case(graph=c.Autocast(c.Region(c.LayerNormMLP())), schedule=(c.Forward(), c.Backward()))


def record(folder: Path, *happened: Event) -> Path:
    """Record events as one process does, and return the folder."""
    log = EventLog(folder)
    for event in happened:
        log.add(event)
    return folder


def counts(domain: str = "contract", since: float = 1000.0, time: float = 1010.0, **more: Any) -> Counted:
    return Counted(domain=domain, since=since, time=time, **{"cases": 10, **more})


def failure(
    kind: str = "FIFO drained",
    case: c.Case = CASE,
    path: str | None = "corpus/a.json",
    violations: Sequence[Violation] = (Violation(oracle="FIFO drained", message="1 left over", iteration=0),),
    ending: str = "",
    **where: str,
) -> Failed:
    """Return a failure, or with ``ending`` a crash."""
    seen = corpus.Seen(ending=ending) if ending else corpus.Seen(violations=tuple(violations))
    saved = corpus.SavedCase(case=case, seen=seen, where={**WHERE, **where})
    place = None if path is None else Path(path)
    return failed("contract", kind, saved, place, None if path is None else f"te-harness replay {path}")


def whole(folder: Path, *happened: Event) -> Path:
    """Record a run of ten cases that came to its end."""
    return record(folder, STARTED, Where(where=WHERE, reason="asked for"), counts(), *happened, ENDED)
