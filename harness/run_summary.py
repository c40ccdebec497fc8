"""The summary of a run: what the events of all its processes come to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from harness.errors import HarnessError, HarnessFault
from harness.events import Counted, Ended, Failed, Started, Where, load
from harness.failure import size_of
from harness.replay import judged_as
from harness.reproducer import script
from harness.tally import Tally
from harness.te_mode import mutant_of

if TYPE_CHECKING:
    from harness.corpus import SavedCase
    from harness.events import Event

Verdict: TypeAlias = Literal["held", "violated", "nothing judged", "fault"]
"""``violated``: something new, a crash, or what others found and fails still; known issues are none of it."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest case of one kind of failure, or of one way to end a process."""

    domain: str
    kind: str
    crash: bool
    shared: bool
    """Others had found it: it is not new, and fails still."""
    saved: SavedCase
    path: str | None
    """Where it was saved; None where it was not, as in a run that was killed: then the events have it."""
    command: str | None
    script: str | None
    """Of torch and Transformer Engine alone; None where there cannot be one."""
    why_no_script: str = ""

    @property
    def fingerprint(self) -> str:
        """The name of its case."""
        return self.saved.case.fingerprint


class Drawn(msgspec.Struct):
    """What was judged of one domain, by all processes together."""

    tally: Tally = msgspec.field(default_factory=Tally)
    intervals: list[tuple[float, float]] = []
    """When each process judged."""

    def add(self, event: Counted) -> None:
        """Add what a process has judged in all."""
        self.intervals.append((event.since, max(event.since, event.time)))
        self.tally.add(
            Tally(
                cases=event.cases,
                raised=event.raised,
                lacking=Counter(event.lacking),
                features=Counter(event.features),
                oracles=Counter(event.oracles),
                violations=Counter(event.violations),
                known=Counter(event.known),
            )
        )

    @property
    def seconds(self) -> float:
        """For how long any process judged: they do so side by side, or one run after another."""
        return covered(self.intervals)

    @property
    def speed(self) -> float:
        """Cases judged in a second."""
        return self.tally.cases / self.seconds if self.seconds > 0 else 0.0


class Summary(msgspec.Struct, kw_only=True):
    """What came of a run, or of several that were recorded in one folder."""

    started: list[Started] = []
    where: list[dict[str, str]] = []
    """Each of the different places where cases were judged."""
    reasons: list[str] = []
    """Why on those backends, one for each place."""
    drawn: dict[str, Drawn] = {}
    findings: list[Finding] = []
    """New failures first, then crashes, then those that others had found; smallest first."""
    faults: list[Ended] = []
    interrupted: bool = False
    unfinished: int = 0
    """Runs that have begun and not told of an end: they were killed, or still go on."""

    @property
    def new(self) -> list[Finding]:
        """The failures that nobody had found before."""
        return [finding for finding in self.findings if not finding.shared and not finding.crash]

    @property
    def crashes(self) -> list[Finding]:
        """What ended its process, or hung."""
        return [finding for finding in self.findings if not finding.shared and finding.crash]

    @property
    def shared(self) -> list[Finding]:
        """What others had found, and fails still."""
        return [finding for finding in self.findings if finding.shared]

    @property
    def tally(self) -> Tally:
        """The counts of all domains together."""
        total = Tally()
        for drawn in self.drawn.values():
            total.add(drawn.tally)
        return total

    @property
    def seconds(self) -> float:
        """For how long any process judged, whatever the domain."""
        return covered([interval for drawn in self.drawn.values() for interval in drawn.intervals])

    @property
    def speed(self) -> float:
        """Cases judged in a second."""
        return self.tally.cases / self.seconds if self.seconds > 0 else 0.0

    @property
    def verdict(self) -> Verdict:
        """What it comes to: the worst first."""
        if any(ended.fault_code == HarnessFault.exit_code for ended in self.faults):
            return "fault"
        tally = self.tally
        if self.findings or +tally.violations:
            return "violated"
        return "held" if tally.cases else "nothing judged"


def covered(intervals: list[tuple[float, float]]) -> float:
    """Return how long at least one of these intervals lasted, in seconds."""
    total, reached = 0.0, 0.0
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def summarise(folder: Path) -> Summary:
    """Return the summary of what was recorded in a folder; raises InvalidInput where that is nothing."""
    sums = _Sums()
    for events in load(folder):
        sums.add(events)
    return sums.summary()


class _Sums:
    """Adds up what processes have recorded."""

    def __init__(self) -> None:
        self._summary = Summary()
        self._smallest: dict[object, tuple[SavedCase, Failed]] = {}

    def add(self, events: list[Event]) -> None:
        """Add the events of one process."""
        summary = self._summary
        going = 0
        last: dict[str, Counted] = {}
        for event in events:
            match event:
                case Started():
                    summary.started.append(event)
                    going += 1
                case Where():
                    if event.where and event.where not in summary.where:
                        summary.where.append(event.where)
                        summary.reasons.append(event.reason)
                case Counted():
                    last[event.domain] = event
                case Failed():
                    self._keep_smallest(event)
                case Ended():
                    going -= 1
                    summary.interrupted |= event.interrupted
                    summary.faults += [] if event.fault is None else [event]
        summary.unfinished += max(0, going)
        for domain, counted in last.items():
            summary.drawn.setdefault(domain, Drawn()).add(counted)

    def summary(self) -> Summary:
        """Return what it all comes to."""
        summary = self._summary
        summary.started.sort(key=lambda started: started.time)
        found = [_finding(saved, event) for saved, event in self._smallest.values()]
        found.sort(key=lambda finding: (finding.shared, finding.crash, size_of(finding.saved.case)))
        summary.findings = found
        return summary

    def _keep_smallest(self, event: Failed) -> None:
        """Of crashes, too, the smallest of each kind tells what there is to tell."""
        saved = event.case()
        kind = saved.seen.ending or event.kind
        where = judged_as(saved.where), saved.where.get("transformer_engine")
        key = event.domain, kind, event.shared, where
        known = self._smallest.get(key)
        if known is None or _rank(saved, event) < _rank(*known):
            self._smallest[key] = saved, event


def _rank(saved: SavedCase, event: Failed) -> tuple[object, ...]:
    """Return what orders cases: the smallest first, and of the same one where it is saved."""
    return size_of(saved.case), event.path is None


def _finding(saved: SavedCase, event: Failed) -> Finding:
    text, why = _script(saved)
    return Finding(
        domain=event.domain,
        kind=event.kind,
        crash=event.crash,
        shared=event.shared,
        saved=saved,
        path=event.path,
        command=event.command,
        script=text,
        why_no_script=why,
    )


def _script(saved: SavedCase) -> tuple[str | None, str]:
    """Return a case as a script, or why there is none."""
    mode = saved.where.get("te_mode", "")
    if mutant_of(mode) is not None:
        return None, f"a script runs Transformer Engine as it is, without the fault planted by {mode}"
    checkpointer = saved.where.get("checkpointer", "te.checkpoint")
    if checkpointer != "te.checkpoint":
        return None, f"a script calls te.checkpoint, and {checkpointer} was tested"
    try:
        return script(saved.case, saved.seen), ""
    except HarnessError as error:
        return None, str(error)
