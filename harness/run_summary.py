"""The summary of a run: what the events of all its processes come to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.campaign import size_of
from harness.errors import HarnessError
from harness.events import Counted, Ended, Failed, Started, Where, load
from harness.reproducer import script
from harness.tally import Tally

if TYPE_CHECKING:
    from harness.corpus import SavedCase


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest case of one kind of failure, or one that ended its process."""

    domain: str
    kind: str
    crash: bool
    saved: SavedCase
    path: str | None
    command: str | None
    script: str | None
    """Of torch and Transformer Engine alone; None where there cannot be one."""
    why_no_script: str = ""
    timeline: str | None = None
    """A page that shows who took whose snapshot, relative to the folder."""

    @property
    def fingerprint(self) -> str:
        """The name of its case."""
        return self.saved.case.fingerprint


class Drawn(msgspec.Struct):
    """What was judged of one domain, by all processes together."""

    tally: Tally = msgspec.field(default_factory=Tally)
    since: float = float("inf")
    until: float = 0.0

    def add(self, event: Counted) -> None:
        """Add what a process has judged."""
        self.since, self.until = min(self.since, event.since), max(self.until, event.time)
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


class Summary(msgspec.Struct, kw_only=True):
    """What came of a run, or of several that were recorded in one folder."""

    started: list[Started] = []
    where: list[dict[str, str]] = []
    """Each of the different places where cases were judged."""
    drawn: dict[str, Drawn] = {}
    findings: list[Finding] = []
    """New failures first, then crashes; smallest first."""
    faults: list[str] = []
    interrupted: bool = False
    unfinished: int = 0
    """Runs that have begun and not told of an end: they were killed, or still go on."""

    @property
    def cases(self) -> int:
        """How many cases were judged."""
        return sum(drawn.tally.cases for drawn in self.drawn.values())

    @property
    def seconds(self) -> float:
        """From the first case that was drawn until the last count."""
        if not self.drawn:
            return 0.0
        return max(d.until for d in self.drawn.values()) - min(d.since for d in self.drawn.values())

    @property
    def speed(self) -> float:
        """Cases judged in a second."""
        return self.cases / self.seconds if self.seconds > 0 else 0.0

    @property
    def known(self) -> Counter[str]:
        """How many cases showed each known issue."""
        return sum((drawn.tally.known for drawn in self.drawn.values()), Counter[str]())

    @property
    def features(self) -> Counter[str]:
        """How many cases had each feature."""
        return sum((drawn.tally.features for drawn in self.drawn.values()), Counter[str]())


def summarise(folder: Path) -> Summary:
    """Return the summary of what was recorded in a folder; raises InvalidInput where that is nothing."""
    summary = Summary()
    smallest: dict[tuple[str, str], tuple[SavedCase, Failed]] = {}
    ends = 0
    for events in load(folder):
        last: dict[str, Counted] = {}
        for event in events:
            match event:
                case Started():
                    summary.started.append(event)
                case Where():
                    if event.where and event.where not in summary.where:
                        summary.where.append(event.where)
                case Counted():
                    last[event.domain] = event
                case Failed():
                    _keep_smallest(smallest, event)
                case Ended():
                    ends += 1
                    summary.interrupted |= event.interrupted
                    summary.faults += [] if event.fault is None else [event.fault]
        for domain, counted in last.items():
            summary.drawn.setdefault(domain, Drawn()).add(counted)
    summary.unfinished = len(summary.started) - ends
    summary.started.sort(key=lambda started: started.time)
    found = [_finding(folder, saved, event) for saved, event in smallest.values()]
    summary.findings = sorted(found, key=lambda finding: (finding.crash, size_of(finding.saved.case)))
    return summary


def _keep_smallest(smallest: dict[tuple[str, str], tuple[SavedCase, Failed]], event: Failed) -> None:
    """Of crashes, too, the smallest of each kind tells what there is to tell."""
    saved = event.case()
    key = event.domain, (saved.seen.ending or event.kind)
    if key not in smallest or size_of(saved.case) < size_of(smallest[key][0].case):
        smallest[key] = saved, event


def _finding(folder: Path, saved: SavedCase, event: Failed) -> Finding:
    text, why = None, "what a case does to its process is not for a script to show"
    if not event.crash:
        try:
            text, why = script(saved.case, saved.seen), ""
        except HarnessError as error:
            why = str(error)
    timeline = f"timelines/{saved.case.fingerprint}.html"
    return Finding(
        domain=event.domain,
        kind=event.kind,
        crash=event.crash,
        saved=saved,
        path=event.path,
        command=event.command,
        script=text,
        why_no_script=why,
        timeline=timeline if (folder / timeline).is_file() else None,
    )
