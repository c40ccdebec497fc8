"""A campaign over one process or several: who judges which chunk, and what comes of it in all.

The supervising process hands out chunks and adds up what comes back. What a chunk yields follows from the
chunk alone, so the outcome of a campaign does not depend on the number of workers; only a time limit makes
it depend on their speed. A case that ends its process, or hangs, is kept; its worker is replaced, and the
chunk judged again without it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from harness import case as c
from harness import corpus, inflight
from harness.crashes import crash, smallest_of_each_kind
from harness.crew import LONGEST_START_SECONDS, Crew, ending, never_began, obituary
from harness.errors import HarnessError, HarnessFault
from harness.failure import size_of
from harness.inflight import Flight, InFlight
from harness.messages import Broken, Chunk, Counted, Done, Failed, Lost, Message, Ready
from harness.outside import overdue
from harness.plan import Outcome, Plan
from harness.tally import Tally
from harness.watchdog import Watchdog
from harness.worker import serve

_MOST_CRASHES = 10
"""Cases that end their process before the campaign ends itself: each costs the start of a worker."""


class _Supervisor:
    """Hands out chunks, and adds up what the workers send."""

    def __init__(self, plan: Plan, on_progress: Callable[[Outcome], None]) -> None:
        self.outcome = Outcome()
        self._plan = plan
        self._chunks = plan.chunks
        self._on_progress = on_progress
        self._again: list[Chunk] = []
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
            case Lost():
                # Of a worker, the foreman takes it; here this very process has lost its device.
                self.fail(HarnessFault(f"{message.how}: judge in worker processes, which may be replaced"))
            case Done():
                pass
        self.tick()

    def fail(self, fault: HarnessError, case: c.Case | None = None) -> None:
        """Take note of what ends the campaign; the first such thing is the one that counts."""
        if self.outcome.fault is None:
            self.outcome.fault, self.outcome.faulty_case = fault, case

    def crashed(self, case: c.Case, how: str) -> None:
        """Take note of a case that ended the process that judged it, or did not come to an end."""
        found = corpus.Found(seed=self._plan.seed, domain=self._plan.domain)
        self.outcome.crashed[case.fingerprint] = crash(case, how, self.outcome.where, found)

    def tick(self) -> None:
        """Bring the clock up to date and show how far the campaign is."""
        if self._started is not None:
            self.outcome.tally.seconds = time.monotonic() - self._started
        self._on_progress(self.outcome)

    def next_chunk(self) -> Chunk | None:
        """Return what to judge next; None when the campaign is at its end."""
        if not self.may_go_on:
            return None
        left = None
        if self._plan.seconds is not None:
            left = self._plan.seconds - self.outcome.tally.seconds
            if left <= 0:
                return None
        if self._again:
            return msgspec.structs.replace(self._again.pop(0), seconds=left)
        chunk = next(self._chunks, None)
        return None if chunk is None else Chunk(*chunk, left)

    @property
    def may_go_on(self) -> bool:
        """Whether a worker that is gone is worth replacing."""
        return len(self.outcome.crashed) < _MOST_CRASHES

    def begin_again(self, chunk: Chunk, counted: Tally) -> None:
        """Have a chunk judged again whose worker is gone, without what crashed; its counts are void."""
        self.outcome.tally.take_back(counted)
        crashed = frozenset(self.outcome.crashed)
        self._again.append(msgspec.structs.replace(chunk, skipped=crashed))


# --- The processes -----------------------------------------------------------------------------------


def run(plan: Plan, on_progress: Callable[[Outcome], None] = lambda _outcome: None) -> Outcome:
    """Run a campaign and return what came of it; an interruption and a fault are part of that.

    ``on_progress`` is called with what has come of it so far, a few times a second.
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
    if plan.workers == 0:
        with warnings.catch_warnings():
            # Odd cases are what this is for; what torch and TE have to say of them would hide the report.
            warnings.simplefilter("ignore")
            serve(plan, supervisor.receive, supervisor.next_chunk)
        return
    with tempfile.TemporaryDirectory(prefix="te-harness-") as folder:
        foreman = _Foreman(plan, supervisor, Path(folder))
        try:
            foreman.crew.start(plan.workers)
            while foreman.crew.busy and supervisor.outcome.fault is None:
                foreman.crew.listen()
                foreman.end_what_hangs()
                foreman.require_a_start()
                supervisor.tick()
        finally:
            foreman.crew.end()
    crashed = supervisor.outcome.crashed
    for smallest in smallest_of_each_kind(crashed.values(), plan.target, plan.case_timeout):
        crashed[smallest.case.fingerprint] = smallest


def useful_workers(wanted: int, plan: Plan) -> int:
    """Return how many of so many workers find a chunk to judge."""
    return sum(1 for _ in itertools.islice(plan.chunks, wanted))


class _Foreman:
    """Hears the workers for a supervisor, and replaces those that a case has ended."""

    def __init__(self, plan: Plan, supervisor: _Supervisor, folder: Path) -> None:
        self._plan = plan
        self._supervisor = supervisor
        self._folder = folder
        self._at_work: dict[Connection, _Stint] = {}
        self._dismissed: set[Connection] = set()
        self._watchdog = Watchdog[Connection](plan.case_timeout)
        self.crew = Crew(functools.partial(_work, plan, folder), self)

    def hear(self, worker: Connection, message: Message) -> None:
        """Pass a message on, and give the worker the next chunk where it has none."""
        if isinstance(message, Lost):
            self._end(worker, inflight.read(self._at_work[worker].file), message.how)
            return
        if isinstance(message, Ready):
            self._at_work[worker] = _Stint(_file(self._folder, self.crew.pid(worker)))
        elif isinstance(message, Counted):
            self._at_work[worker].counted.add(message.tally)
        self._supervisor.receive(message)
        if isinstance(message, Ready | Done):
            chunk = self._supervisor.next_chunk()
            if chunk is None:
                self._dismissed.add(worker)
            self._at_work[worker].begin(chunk)
            self.crew.tell(worker, chunk)

    def bury(self, worker: Connection, exit_code: int | None) -> None:
        """Take note that a worker has ended: of its case, or of something else."""
        stint = self._at_work.pop(worker, None)
        flight = None if stint is None else inflight.read(stint.file)
        if stint is not None and flight is not None:
            self._lose(stint, flight.case, ending(exit_code))
        elif exit_code != 0 or worker not in self._dismissed:
            # Even a worker that ends with 0 has failed if there was still a chunk in its hands.
            self._supervisor.fail(HarnessFault(obituary(exit_code)))

    def end_what_hangs(self) -> None:
        """End the workers whose case has taken too long."""
        flights = [(worker, inflight.read(stint.file)) for worker, stint in self._at_work.items()]
        judging = [(worker, flight) for worker, flight in flights if flight is not None]
        for worker, flight in self._watchdog.look(judging):
            self._end(worker, flight, overdue(self._plan.case_timeout))

    def require_a_start(self) -> None:
        """Fail where a worker does not become ready: another in its place would fare no better."""
        if any(worker not in self._at_work for worker in self.crew.silent_for(LONGEST_START_SECONDS)):
            self._supervisor.fail(HarnessFault(never_began()))

    def _end(self, worker: Connection, flight: Flight | None, how: str) -> None:
        """End a worker that its case holds, or has left without a device."""
        self.crew.dismiss(worker)
        stint = self._at_work.pop(worker)
        if flight is None:
            self._supervisor.fail(HarnessFault(f"a worker said {how!r} and judged no case"))
        else:
            self._lose(stint, flight.case, how)

    def _lose(self, stint: _Stint, case: c.Case, how: str) -> None:
        self._supervisor.crashed(case, how)
        if stint.chunk is not None:
            self._supervisor.begin_again(stint.chunk, stint.counted)
        if self._supervisor.may_go_on:
            self.crew.start(1)


class _Stint:
    """What a worker has in its hands."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.begin(None)

    def begin(self, chunk: Chunk | None) -> None:
        """Begin a chunk."""
        self.chunk = chunk
        self.counted = Tally()


def _file(folder: Path, pid: int) -> Path:
    return folder / f"{pid}.case"


def _work(plan: Plan, folder: Path, connection: Connection) -> None:
    """Be a worker: judge chunks until there are no more."""
    serve(plan, connection.send, connection.recv, InFlight(_file(folder, os.getpid())))
