"""The events of a campaign of ``te-harness fuzz``, recorded by the process that supervises it.

They follow the campaign's outcome, not what its workers say: what is taken back after a crash, to be judged
again, is taken back in the next count too.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.errors import HarnessError, HarnessFault
from harness.events import Ended, EventLog, Started, Where, counted, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.corpus import SavedCase
    from harness.plan import Outcome, Plan

_SECONDS_BETWEEN_COUNTS = 5.0
_SHARE_BETWEEN_COUNTS = 0.01
"""Of the time that has passed: the counts of a long campaign are large, and new ones change little."""

Paths: TypeAlias = "Mapping[str, Path | None]"
"""Where cases were saved, by kind or fingerprint; None for what could not be."""


class CampaignEvents:
    """Records a campaign, as far as its log can be written.

    Args:
        log: of the run.
        plan: of the campaign.
        planned: how many cases it draws here; None where time alone is the limit.
    """

    def __init__(self, log: EventLog, plan: Plan, planned: int | None) -> None:
        self._log = log
        self._plan = plan
        self._placed = False
        self._told: set[tuple[str, str]] = set()
        self._counted = 0.0
        log.add(
            Started(
                time=time.time(),
                run="fuzz",
                domains=(plan.domain,),
                seed=plan.seed,
                cases=planned,
                seconds=plan.seconds,
                shard=plan.shard,
                workers=plan.workers,
            )
        )

    @property
    def problem(self) -> HarnessError | None:
        """What kept events from being written, if anything did."""
        return self._log.problem

    def follow(self, outcome: Outcome) -> None:
        """Record what is new of an outcome that is still growing; counts only now and then."""
        self._place(outcome)
        for kind, saved in outcome.found.items():
            self._see(kind, saved)
        for saved in outcome.crashed.values():
            self._see(saved.why, saved)
        passed = outcome.tally.seconds
        if passed - self._counted > max(_SECONDS_BETWEEN_COUNTS, _SHARE_BETWEEN_COUNTS * passed):
            self._count(outcome)

    def conclude(self, outcome: Outcome, saved: Paths, crashes: Paths, shared: Paths) -> None:
        """Record all that came of a campaign, and where its cases are saved."""
        self._place(outcome)
        self._count(outcome)
        for kind, path in saved.items():
            self._keep(kind, outcome.found[kind], path)
        for name, path in crashes.items():
            self._keep(outcome.crashed[name].why, outcome.crashed[name], path)
        for kind, path in shared.items():
            self._keep(kind, outcome.again.failing[kind], path, shared=True)
        fault = outcome.fault
        self._log.add(
            Ended(
                time=time.time(),
                interrupted=outcome.interrupted,
                fault=None if fault is None else str(fault),
                fault_code=(fault or HarnessFault).exit_code,
            )
        )

    def _place(self, outcome: Outcome) -> None:
        if outcome.where and not self._placed:
            self._placed = True
            self._log.add(Where(where=outcome.where, reason=outcome.reason))

    def _see(self, kind: str, saved: SavedCase) -> None:
        """Record a case that is not saved yet, once."""
        case = (kind, saved.case.fingerprint)
        if case not in self._told:
            self._told.add(case)
            self._keep(kind, saved, None)

    def _keep(self, kind: str, saved: SavedCase, path: Path | None, *, shared: bool = False) -> None:
        # Whoever writes it into a file may then give it that name.
        command = self._plan.target.replay_command(path or Path(f"{saved.case.fingerprint}.json"))
        self._log.add(failed(self._plan.domain, kind, saved, path, command, shared=shared))

    def _count(self, outcome: Outcome) -> None:
        self._counted = outcome.tally.seconds
        since = time.time() - outcome.tally.seconds
        self._log.add(counted(self._plan.domain, outcome.tally, since))
