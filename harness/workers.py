"""A campaign over one process or several: who judges which chunk, and what comes of it in all.

The supervising process hands out chunks and adds up what comes back; with one worker it judges them
itself. What a chunk yields follows from the chunk alone, so the outcome of a campaign does not depend on
the number of workers; only a time limit makes it depend on their speed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harness import case as c
from harness import corpus
from harness.campaign import (
    CHUNK,
    Failure,
    JudgingFault,
    Tally,
    chunks,
    kind_of,
    known_in,
    run_chunk,
    size_of,
)
from harness.corpus import SavedCase
from harness.crew import Crew, obituary
from harness.errors import HarnessError, HarnessFault, ReleaseLacks
from harness.messages import Broken, Chunk, Counted, Done, Failed, Message, Ready
from harness.target import Target

if TYPE_CHECKING:
    from harness.verdict import Verdict

_FLUSH_SECONDS = 0.2


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is to do. ``seconds`` is how long cases are drawn, counted from the first one."""

    target: Target = Target()
    domain: str = "contract"
    seed: int
    cases: int
    seconds: float | None = None
    workers: int = 1


class Outcome(msgspec.Struct):
    """What came of a campaign, as far as it got: until its end, an interruption or a fault."""

    tally: Tally = msgspec.field(default_factory=Tally)
    found: dict[str, SavedCase] = {}
    """The smallest case of each kind of failure."""
    where: dict[str, str] = {}
    reason: str = ""
    """Why this backend."""
    interrupted: bool = False
    fault: HarnessError | None = None
    faulty_case: c.Case | None = None
    """The case on which the harness failed, where there is one."""


_Send: TypeAlias = Callable[[Message], None]


class _Worker:
    """Judges chunks, and sends what comes of them."""

    def __init__(self, plan: Plan, send: _Send) -> None:
        from strategies.domains import DOMAINS

        self._plan = plan
        self._send = send
        domain = DOMAINS[plan.domain]
        self._strategy = domain.strategy()
        self._promised = domain.promised
        self._issues = known_in(domain)
        self._session = plan.target.open()
        self._where = plan.target.where(self._session)
        self._tally = Tally()
        self._sent = time.monotonic()
        self._kinds: set[str] = set()
        send(Ready(self._where, self._session.backend.reason))

    def judge(self, chunk: Chunk) -> None:
        """Judge one chunk of cases, and shrink what fails."""
        deadline = None if chunk.seconds is None else time.monotonic() + chunk.seconds
        try:
            failures = run_chunk(
                self._session.judge,
                self._strategy,
                chunk.seed,
                chunk.cases,
                self._observe,
                deadline,
                refused=self._note_refused,
                promised=self._promised,
                issues=self._issues,
            )
        finally:
            self._flush()
        for failure in failures:
            self._report(failure)
        self._send(Done())

    def _observe(self, case: c.Case, verdict: Verdict) -> None:
        self._tally.count(case, verdict, self._issues)
        kind = kind_of(case, verdict, self._issues)
        if kind is not None and kind not in self._kinds:
            # Reported before it is shrunk, so that it is not lost if the campaign ends here.
            self._kinds.add(kind)
            self._report(Failure(kind, case, verdict))
        if time.monotonic() - self._sent > _FLUSH_SECONDS:
            self._flush()

    def _note_refused(self, error: ReleaseLacks) -> None:
        self._tally.lacking[error.what] += 1

    def _flush(self) -> None:
        self._send(Counted(self._tally))
        self._tally = Tally()
        self._sent = time.monotonic()

    def _report(self, failure: Failure) -> None:
        found = corpus.Found(seed=self._plan.seed, domain=self._plan.domain)
        self._send(Failed(failure.kind, corpus.from_failure(failure, self._where, found)))


class _Supervisor:
    """Hands out chunks, and adds up what the workers send."""

    def __init__(self, plan: Plan, on_progress: Callable[[Tally], None]) -> None:
        self.outcome = Outcome()
        self._plan = plan
        self._chunks = chunks(plan.cases, plan.seed)
        self._on_progress = on_progress
        self._started: float | None = None

    def receive(self, message: Message) -> None:
        """Take note of what a worker says."""
        outcome = self.outcome
        match message:
            case Ready():
                outcome.where, outcome.reason = message.where, message.reason
                # Starting takes seconds, on some machines many: they are not counted.
                self._started = self._started or time.monotonic()
            case Counted():
                outcome.tally.add(message.tally)
            case Failed():
                known = outcome.found.get(message.kind)
                if known is None or size_of(message.saved.case) < size_of(known.case):
                    outcome.found[message.kind] = message.saved
            case Broken():
                self.fail(message.error(), message.case)
            case Done():
                pass
        self.tick()

    def fail(self, fault: HarnessError, case: c.Case | None = None) -> None:
        """Take note of what ends the campaign; the first such thing is the one that counts."""
        if self.outcome.fault is None:
            self.outcome.fault, self.outcome.faulty_case = fault, case

    def tick(self) -> None:
        """Bring the clock up to date and show how far the campaign is."""
        if self._started is not None:
            self.outcome.tally.seconds = time.monotonic() - self._started
        self._on_progress(self.outcome.tally)

    def next_chunk(self) -> Chunk | None:
        """Return what to judge next; None when the campaign is at its end."""
        left = None
        if self._plan.seconds is not None:
            left = self._plan.seconds - self.outcome.tally.seconds
            if left <= 0:
                return None
        chunk = next(self._chunks, None)
        return None if chunk is None else Chunk(*chunk, left)


# --- The processes -----------------------------------------------------------------------------------


def run(plan: Plan, on_progress: Callable[[Tally], None] = lambda _tally: None) -> Outcome:
    """Run a campaign and return what came of it; an interruption and a fault are part of that.

    ``on_progress`` is called with the tally so far, a few times a second.
    """
    supervisor = _Supervisor(plan, on_progress)
    try:
        with interruptible():
            _run(plan, supervisor)
    except KeyboardInterrupt:
        supervisor.outcome.interrupted = True
    return supervisor.outcome


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let what ends a job on a cluster or a closed terminal end a campaign as Ctrl-C does: with a report."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    kept = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _run(plan: Plan, supervisor: _Supervisor) -> None:
    # Somebody's own checkpointer may end its process: that must not be this one.
    if plan.workers == 1 and plan.target.checkpointer is None:
        _run_here(plan, supervisor)
    else:
        _run_in_processes(plan, supervisor)


def default_workers() -> int:
    """Return how many workers ``auto`` stands for: one per core that this process may use.

    That goes for a GPU too: the work is bound by launches, and many processes share one GPU well.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def useful_workers(wanted: int, cases: int) -> int:
    """Return how many of so many workers find a chunk to judge."""
    return min(wanted, math.ceil(cases / CHUNK))


def _run_here(plan: Plan, supervisor: _Supervisor) -> None:
    with warnings.catch_warnings():
        # Odd cases are what this is for; what torch and TE have to say of them would hide the report.
        warnings.simplefilter("ignore")
        _serve(plan, supervisor.receive, supervisor.next_chunk)


def _run_in_processes(plan: Plan, supervisor: _Supervisor) -> None:
    crew = _Foreman(plan, supervisor).crew
    try:
        crew.start(plan.workers)
        while crew.busy and supervisor.outcome.fault is None:
            crew.listen()
            supervisor.tick()
    finally:
        crew.end()


class _Foreman:
    """Hears the workers for a supervisor."""

    def __init__(self, plan: Plan, supervisor: _Supervisor) -> None:
        self._supervisor = supervisor
        self._dismissed: set[Connection] = set()
        self.crew = Crew(functools.partial(_work, plan), self)

    def hear(self, worker: Connection, message: Message) -> None:
        """Pass a message on, and give the worker the next chunk where it has none."""
        self._supervisor.receive(message)
        if isinstance(message, Ready | Done):
            chunk = self._supervisor.next_chunk()
            if chunk is None:
                self._dismissed.add(worker)
            self.crew.tell(worker, chunk)

    def bury(self, worker: Connection, exit_code: int | None) -> None:
        """Take note that a worker has ended."""
        # Even a worker that ends with 0 has failed if there was still a chunk in its hands.
        if exit_code != 0 or worker not in self._dismissed:
            self._supervisor.fail(HarnessFault(obituary(exit_code)))


def _work(plan: Plan, connection: Connection) -> None:
    """Be a worker: judge chunks until there are no more."""
    _serve(plan, connection.send, connection.recv)


def _serve(plan: Plan, send: _Send, next_chunk: Callable[[], Chunk | None]) -> None:
    try:
        worker = _Worker(plan, send)
        while (chunk := next_chunk()) is not None:
            worker.judge(chunk)
    except HarnessError as error:
        case = error.case if isinstance(error, JudgingFault) else None
        send(Broken(str(error), error.exit_code, case))
    except Exception as error:
        send(Broken(f"{type(error).__name__}: {error}", HarnessFault.exit_code, None))
        raise
