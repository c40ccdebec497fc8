"""Outside: cases are judged in a process of its own, which any of them may end.

Whatever a case does to that process, the next one is judged in a fresh one: a GPU whose context is broken
answers nothing right any more.
"""

from __future__ import annotations

import functools
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harness.crew import LONGEST_START_SECONDS, Crew, ending, never_began, obituary
from harness.errors import DeviceLost, HarnessFault
from harness.leases import bind
from harness.messages import Broken, Ready, telling

if TYPE_CHECKING:
    from harness import case as c
    from harness.target import Target
    from harness.verdict import Verdict


class Ended(msgspec.Struct, frozen=True):
    """In place of a verdict: how the process ended that judged the case."""

    how: str


Said: TypeAlias = "Verdict | Broken | Ended"
"""What came of a case, by the process itself or by its end."""


class Outside:
    """Judges cases on a target, in a process that is started when it is needed first.

    Args:
        target: what is tested.
        case_timeout: seconds after which a case is taken to hang.
    """

    def __init__(self, target: Target, case_timeout: float) -> None:
        self.where: dict[str, str] = {}
        """What a saved case says about where it was judged; empty until the first one is."""
        self._timeout = case_timeout
        self._crew = Crew(functools.partial(_judge_all, target), self)
        self._worker: Connection | None = None
        self._said: Said | None = None

    def __enter__(self) -> Outside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.end()

    def judge(self, case: c.Case) -> Verdict | Ended:
        """Return the verdict on a case, or how the process ended; raises what the harness raised there."""
        worker = self._worker or self._start()
        self._said = None
        self._crew.tell(worker, case)
        while (said := self._heard()) is None:
            if worker in self._crew.silent_for(self._timeout):
                self._dismiss(worker)
                return Ended(overdue(self._timeout))
            self._crew.listen()
        if isinstance(said, Broken):
            # It has ended with what it said, perhaps without our having heard so yet.
            self._dismiss(worker)
            raise said.error()
        if isinstance(said, Ended):
            self._dismiss(worker)
        return said

    def _dismiss(self, worker: Connection) -> None:
        if self._worker is worker:
            self._crew.dismiss(worker)
            self._worker = None

    def _heard(self) -> Said | None:
        return self._said

    def _start(self) -> Connection:
        self._crew.start(1)
        self._said = None
        while (worker := self._worker) is None:
            self._crew.listen()
            if isinstance(self._said, Broken):
                raise self._said.error()
            if self._crew.silent_for(LONGEST_START_SECONDS):
                raise HarnessFault(never_began())
        return worker

    def hear(self, worker: Connection, message: Ready | Said) -> None:
        """Take note of what the process says."""
        if isinstance(message, Ready):
            self._worker, self.where = worker, message.where
        else:
            self._said = message

    def bury(self, _worker: Connection, exit_code: int | None) -> None:
        """Take note that the process has ended."""
        if self._worker is None and self._said is None:
            raise HarnessFault(obituary(exit_code))
        self._worker = None
        self._said = self._said or Ended(ending(exit_code))


def overdue(seconds: float) -> str:
    """Return in words that a case hung."""
    return f"not at its end after {seconds:g} seconds"


def _judge_all(target: Target, connection: Connection) -> None:
    """Judge what comes, until nothing more does."""
    with telling(connection.send):
        bind(target.backend)
        session = target.open()
        connection.send(Ready(target.where(session), session.backend.reason))
        while (case := connection.recv()) is not None:
            try:
                connection.send(session.judge(case))
            except DeviceLost as lost:
                connection.send(Ended(lost.how))
                return
