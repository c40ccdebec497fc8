"""How sensitive the harness is: every mutant is tried, over worker processes, and what is finished is kept.

First the cases are surveyed: each must hold without any mutant, and it is noted which lines it runs. Then
each mutant is tried on the cases that run its lines. Last, for each oracle, a mutant is looked for that no
other oracle objects to in any case.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from harness import reach, record
from harness.crew import Crew, Work, obituary
from harness.errors import HarnessError, HarnessFault
from harness.messages import Broken, telling
from harness.mutants import find
from harness.target import Target
from harness.trial import Finished, How, Sole, Trial
from harness.trial_messages import At, Done, Exhaust, Ready, Survey, Surveyed, Task, Try
from harness.violations import ORACLES
from harness.workers import interruptible

if TYPE_CHECKING:
    from harness import case as c
    from harness.reach import Reach

DOMAIN = "contract"

_CANARY = 1
"""The case, the simplest, that shows after each mutant whether the process still judges right."""

_LONGEST_CASE_SECONDS = 60.0
"""A case takes tens of milliseconds; one that takes this long does not end."""

_SURVEYED_AT_ONCE = 25

_SPARED = 3
"""Workers of a campaign that may be killed from outside before it ends."""

_CANDIDATES = 10
"""How many mutants are looked at, for each oracle, to find one that it alone objects to."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is to do: which mutants, and on which cases."""

    mutants: tuple[str, ...]
    seed: int = 0
    cases: int
    workers: int = 1


class Outcome(msgspec.Struct):
    """What came of a campaign, as far as it got."""

    trials: dict[str, Trial] = {}
    sole: dict[str, Sole] = {}
    where: dict[str, str] = {}
    interrupted: bool = False
    fault: HarnessError | None = None

    def sole_killer(self) -> dict[How, str]:
        """Return, for each oracle where there is one, a mutant that it alone objects to in all cases."""
        found: dict[How, str] = {}
        for sole in self.sole.values():
            if len(sole.counted) == 1:
                found.setdefault(next(iter(sole.counted)), sole.mutant)
        return found


# --- A worker ----------------------------------------------------------------------------------------


def _work(plan: Plan, drawn: Sequence[c.Case], connection: Connection) -> None:
    with telling(connection.send):
        _serve(plan, drawn, connection)


def _serve(plan: Plan, drawn: Sequence[c.Case], connection: Connection) -> None:
    from strategies.domains import DOMAINS

    target = Target(backend="cpu")
    # The target's session shows where this runs; the court's own take its place.
    session = target.open()
    where = target.where(session)
    from harness.court import Cases, Court

    session.close()
    cases = Cases(DOMAINS[DOMAIN].strategy(), drawn, plan.seed)
    court = Court(session.backend, cases, lambda number: connection.send(At(number)))
    connection.send(Ready(where))
    while (task := connection.recv()) is not None:
        match task:
            case Survey():
                whole = reach.measure(task.numbers, court.require_health)
                connection.send(Surveyed(whole, reach.measure(task.numbers, court.run_directly)))
            case Try():
                trial = court.try_mutant(task.mutant, task.numbers, task.directly)
                connection.send(Done(trial, court.is_tainted(_CANARY)))
            case Exhaust():
                sole = Sole(task.mutant, court.objections(task.mutant, task.numbers))
                connection.send(Done(sole, court.is_tainted(_CANARY)))


# --- The supervisor ----------------------------------------------------------------------------------


class _Supervisor:
    """Hands out tasks, and keeps what comes of them."""

    def __init__(
        self,
        plan: Plan,
        done: Iterable[Finished],
        keep: Callable[[Finished], None],
        on_progress: Callable[[Outcome], None],
        work: Work,
    ) -> None:
        self.outcome = Outcome()
        self.crew = Crew(work, self)
        self._plan = plan
        self._keep = keep
        self._on_progress = on_progress
        self._surveyed: list[Surveyed] = []
        self._reach: Reach | None = None
        self._directly: Reach = {}
        self._waiting: list[Connection] = []
        self._at_work: dict[Connection, tuple[Task, int]] = {}
        self._fresh: set[Connection] = set()
        self._spared = _SPARED
        self._tasks: list[Task] = _surveys(plan.cases)
        for finished in done:
            self._note(finished)

    def run(self) -> None:
        """Run the campaign to its end."""
        self.crew.start(self._plan.workers)
        try:
            while self.crew.busy and self.outcome.fault is None:
                self.crew.listen()
                for worker in self.crew.silent_for(_LONGEST_CASE_SECONDS):
                    if worker in self._at_work:
                        self._lost(worker, "hang")
                self._on_progress(self.outcome)
                if not self._at_work and not self._refill():
                    return
                self._hand_out()
        finally:
            self.crew.end()

    def hear(self, worker: Connection, message: Any) -> None:
        """Take note of what a worker says."""
        match message:
            case Ready():
                self.outcome.where = message.where
                self._fresh.add(worker)
                self._waiting.append(worker)
            case At():
                self._at_work[worker] = self._at_work[worker][0], message.number
            case Surveyed():
                self._surveyed.append(message)
                self._at_work.pop(worker)
                self._waiting.append(worker)
            case Done():
                self._finish(worker, message)
            case Broken():
                self.outcome.fault = self.outcome.fault or message.error()

    def bury(self, worker: Connection, exit_code: int | None) -> None:
        """Take note that a worker has died: of the mutant that it was trying, or of something else."""
        # No mutant kills its process so: memory ran out, or somebody did it.
        killed = exit_code == -signal.SIGKILL
        if self.outcome.fault is not None:
            return
        if killed and self._spared:
            self._spared -= 1
            self._replace(worker)
        elif killed or worker not in self._at_work:
            self.outcome.fault = HarnessFault(obituary(exit_code))
        else:
            self._lost(worker, "crash", dead=True)

    def _replace(self, worker: Connection) -> None:
        """Start another worker for one that is gone, which must do what that one was doing."""
        task, _ = self._at_work.pop(worker, (None, 0))
        if task is not None:
            self._tasks.insert(0, task)
        else:
            self._waiting.remove(worker)
        self._fresh.discard(worker)
        self.crew.start(1)

    # --- Tasks ---

    def _refill(self) -> bool:
        """Find what is to be done next, once all that was to be done is; tell whether there is anything."""
        if self._tasks:
            return True
        if self._reach is None:
            if not self._surveyed:
                return True
            self._reach = reach.merge([surveyed.reach for surveyed in self._surveyed])
            self._directly = reach.merge([surveyed.directly for surveyed in self._surveyed])
            todo = [name for name in self._plan.mutants if name not in self.outcome.trials]
            self._tasks = [Try(name, self._numbers(name), self._numbers_directly(name)) for name in todo]
            if self._tasks:
                return True
        self._tasks = [Exhaust(name, self._numbers(name)) for name in self._candidates()]
        return bool(self._tasks)

    def _hand_out(self) -> None:
        while self._tasks and self._waiting:
            worker, task = self._waiting.pop(), self._tasks.pop(0)
            self._at_work[worker] = task, 0
            self.crew.tell(worker, task)

    def _numbers(self, name: str) -> tuple[int, ...]:
        return tuple(reach.reaching(self._reach or {}, find(name), range(1, self._plan.cases + 1)))

    def _numbers_directly(self, name: str) -> frozenset[int]:
        return frozenset(reach.reaching(self._directly, find(name), self._numbers(name)))

    def _candidates(self) -> list[str]:
        """Return mutants to find those that one oracle alone objects to: one more for each oracle without."""
        found = self.outcome.sole_killer()
        chosen = []
        for oracle in ORACLES:
            alone = [trial for trial in self.outcome.trials.values() if trial.by == (oracle,)]
            left = [trial for trial in alone if trial.mutant not in self.outcome.sole]
            if oracle not in found and left and len(alone) - len(left) < _CANDIDATES:
                # The fewer cases there are to judge, the sooner it is known, and the likelier it is.
                chosen.append(min(left, key=lambda trial: trial.reaching).mutant)
        return chosen

    # --- What comes of them ---

    def _finish(self, worker: Connection, done: Done) -> None:
        task, _ = self._at_work.pop(worker)
        fresh = worker in self._fresh
        self._fresh.discard(worker)
        if done.tainted:
            # What an earlier mutant has left behind may be what was seen: a new process must see it too.
            self.crew.dismiss(worker)
            self.crew.start(1)
            if not fresh:
                self._tasks.insert(0, task)
                return
        else:
            self._waiting.append(worker)
        self._note(done.finished)
        self._keep(done.finished)

    def _lost(self, worker: Connection, how: How, *, dead: bool = False) -> None:
        """Take note that a worker hung or died, and replace it; what it did, a fresh one must do too."""
        task, number = self._at_work.pop(worker)
        fresh = worker in self._fresh
        self._fresh.discard(worker)
        if not dead:
            self.crew.dismiss(worker)
        self.crew.start(1)
        if isinstance(task, Survey):
            self.outcome.fault = HarnessFault(f"{how} in case {number}, without any mutant")
        elif not fresh:
            self._tasks.insert(0, task)
        else:
            lost = _lost_to(task, number, how)
            self._note(lost)
            self._keep(lost)

    def _note(self, finished: Finished) -> None:
        if isinstance(finished, Trial):
            self.outcome.trials[finished.mutant] = finished
        else:
            self.outcome.sole[finished.mutant] = finished


def _lost_to(task: Try | Exhaust, number: int, how: How) -> Finished:
    """Return what becomes of a mutant under which a fresh worker was lost."""
    if isinstance(task, Exhaust):
        return Sole(task.mutant, {how: 1})
    return Trial(mutant=task.mutant, outcome="killed", by=(how,), case=number, reaching=len(task.numbers))


def _surveys(cases: int) -> list[Task]:
    starts = range(1, cases + 1, _SURVEYED_AT_ONCE)
    return [Survey(tuple(range(start, min(start + _SURVEYED_AT_ONCE, cases + 1)))) for start in starts]


def run(
    plan: Plan,
    done: Iterable[Finished] = (),
    keep: Callable[[Finished], None] = lambda _finished: None,
    on_progress: Callable[[Outcome], None] = lambda _outcome: None,
    work: Work | None = None,
) -> Outcome:
    """Run a campaign and return what came of it; an interruption and a fault are part of that.

    Args:
        plan: what to do.
        done: what an earlier run of the same plan has finished already.
        keep: called with each mutant that is finished.
        on_progress: called a few times a second.
        work: what a worker does; None for trying mutants.
    """
    supervisor = _Supervisor(plan, done, keep, on_progress, work or _trying(plan))
    try:
        with interruptible():
            supervisor.run()
    except KeyboardInterrupt:
        supervisor.outcome.interrupted = True
    return supervisor.outcome


def _trying(plan: Plan) -> Work:
    """Return what a worker does: trying mutants on cases that are drawn here, once for all."""
    from strategies.domains import DOMAINS

    drawn = record.draw(DOMAINS[DOMAIN].strategy(), plan.cases, plan.seed)
    return functools.partial(_work, plan, drawn)
