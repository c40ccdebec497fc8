"""The events of a campaign of ``te-harness fuzz``, recorded by the process that supervises it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.events import FORMAT, Ended, EventLog, Started, Where, counted, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from harness.corpus import SavedCase
    from harness.events import Event
    from harness.plan import Outcome, Plan
    from harness.tally import Tally

_SECONDS_BETWEEN_COUNTS = 5.0


class CampaignEvents:
    """Records a campaign in a folder. What goes wrong is told once, and does not end the campaign.

    Args:
        log: of the run.
        plan: of the campaign.
        warn: is told, in a line, where no more can be recorded.
    """

    def __init__(self, log: EventLog, plan: Plan, warn: Callable[[str], None]) -> None:
        self._log: EventLog | None = log
        self._plan = plan
        self._warn = warn
        self._counted = 0.0
        self._add(
            Started(
                format=FORMAT,
                time=time.time(),
                run="fuzz",
                domains=(plan.domain,),
                seed=plan.seed,
                cases=None if plan.seconds is not None else plan.cases,
                seconds=plan.seconds,
                shard=plan.shard,
                workers=plan.workers,
            )
        )

    def count(self, tally: Tally) -> None:
        """Record, now and then, what has been judged so far."""
        if tally.seconds - self._counted > _SECONDS_BETWEEN_COUNTS:
            self._count(tally)

    def conclude(self, outcome: Outcome, kept: Iterable[tuple[str, SavedCase, Path | None]]) -> None:
        """Record what came of the campaign: of each failure its kind, its case and where that is saved."""
        self._add(Where(where=outcome.where, reason=outcome.reason))
        self._count(outcome.tally)
        for kind, saved, path in kept:
            command = None if path is None else self._plan.target.replay_command(path)
            self._add(failed(self._plan.domain, kind, saved, path, command))
        fault = None if outcome.fault is None else str(outcome.fault)
        self._add(Ended(time=time.time(), interrupted=outcome.interrupted, fault=fault))

    def _count(self, tally: Tally) -> None:
        self._counted = tally.seconds
        self._add(counted(self._plan.domain, tally, time.time() - tally.seconds))

    def _add(self, event: Event) -> None:
        if self._log is None:
            return
        try:
            self._log.add(event)
        except HarnessError as error:
            self._log = None
            self._warn(f"nothing more is recorded: {error}")
