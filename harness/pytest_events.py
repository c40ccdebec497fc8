"""The events of a run of pytest: each process records what it judges, the first one the run as a whole."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from harness.events import Ended, EventLog, Started, Where, counted, failed
from harness.exits import warn
from harness.pytest_options import OPTIONS
from harness.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from harness.corpus import SavedCase
    from harness.errors import HarnessFault
    from harness.events import Event
    from harness.pytest_options import Options
    from harness.session import Session


class Recorder:
    """Records what this process judges, where ``--events`` asks for it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._log = None if options.events is None else EventLog(options.events)
        self._tallies: dict[str, Tally] = {}
        self._since: dict[str, float] = {}

    def start(self, workers: int) -> None:
        """Record that a run begins."""
        options = self._options
        self._add(
            Started(
                time=time.time(),
                run="pytest",
                seed=options.seed,
                cases=options.cases,
                seconds=options.seconds,
                workers=workers,
            )
        )

    def open(self, session: Session) -> None:
        """Record what this process runs on."""
        self._add(Where(where=self._options.target.where(session), reason=session.backend.reason))

    def judged(self, domain: str, tally: Tally, since: float) -> None:
        """Record what a shard has judged: once it is whole, since one that crashes is judged again."""
        self._since.setdefault(domain, since)
        self._tallies.setdefault(domain, Tally()).add(tally)
        self._add(counted(domain, self._tallies[domain], self._since[domain]))

    def failed(self, domain: str, kind: str, saved: SavedCase, path: Path, *, shared: bool = False) -> None:
        """Record a case that fails, or ended its process; ``shared`` says that others had found it before."""
        command = self._options.target.replay_command(path)
        self._add(failed(domain, kind, saved, path, command, shared=shared))

    def fault(self, fault: HarnessFault) -> None:
        """Record that the harness itself failed."""
        self._add(Ended(time=time.time(), fault=str(fault), fault_code=fault.exit_code))

    def end(self, *, interrupted: bool) -> None:
        """Record that the run is over."""
        self._add(Ended(time=time.time(), interrupted=interrupted))
        if self._log is not None and self._log.problem is not None:
            warn(f"not all events were recorded: {self._log.problem}")

    def _add(self, event: Event) -> None:
        if self._log is not None:
            self._log.add(event)


RECORDER = pytest.StashKey[Recorder]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record; the first process records the run."""
    recorder = config.stash[RECORDER] = Recorder(config.stash[OPTIONS])
    if not hasattr(config, "workerinput"):
        recorder.start(len(config.getoption("tx", None) or "1"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record the end of the run, after all that is found at its end."""
    if not hasattr(session.config, "workerinput"):
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        session.config.stash[RECORDER].end(interrupted=interrupted)
