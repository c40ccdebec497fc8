"""The plan of a campaign, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from harness import case as c
from harness.campaign import chunks
from harness.corpus import SavedCase
from harness.errors import HarnessError
from harness.failure import size_of
from harness.tally import Tally
from harness.target import Target


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is to do. ``seconds`` is how long cases are drawn, counted from the first one."""

    target: Target = Target()
    domain: str = "contract"
    seed: int
    cases: int
    """Of all shards together."""
    shard: tuple[int, int] = (1, 1)
    """Which part of the cases is drawn here: the I-th of N."""
    seconds: float | None = None
    workers: int = 0
    """Processes; 0 for none but this one, which a case may then take down with it."""
    case_timeout: float = 120.0
    """Seconds after which a case is taken to hang; the slowest, the first on a GPU, take a few."""

    @property
    def chunks(self) -> Iterator[tuple[int, int]]:
        """The seed and the number of cases of each chunk that is drawn here."""
        return chunks(self.cases, self.seed, self.shard)


class Again(msgspec.Struct):
    """What has become of finds, counted."""

    failing: dict[str, SavedCase] = {}
    """The smallest of each kind, as it fails here."""
    failed: int = 0
    removed: int = 0
    """Those that are fixed, and gone from the database."""
    held: int = 0
    """Those that hold, or show known issues alone, and stay: seen elsewhere, or in a database that is only
    read."""
    not_run: int = 0
    """Those that need what this release lacks."""
    not_judged: int = 0
    """Those for which there was no time, or on which the harness failed."""

    def fail(self, kind: str, saved: SavedCase) -> None:
        """Count one that fails."""
        self.failed += 1
        self.failing[kind] = min(self.failing.get(kind, saved), saved, key=lambda one: size_of(one.case))


class Outcome(msgspec.Struct):
    """What came of a campaign, as far as it got: until its end, an interruption or a fault."""

    tally: Tally = msgspec.field(default_factory=Tally)
    found: dict[str, SavedCase] = {}
    """The smallest case of each kind of failure."""
    crashed: dict[str, SavedCase] = {}
    """The cases that ended the process that judged them, or did not come to an end, by their fingerprints."""
    again: Again = msgspec.field(default_factory=Again)
    """What has become of others' finds: apart from the campaign's own, and not in its tally."""
    where: dict[str, str] = {}
    reason: str = ""
    """Why this backend."""
    interrupted: bool = False
    fault: HarnessError | None = None
    faulty_case: c.Case | None = None
    """The case on which the harness failed, where there is one."""
