"""Tries mutants: judges cases under one until a case fails, and shrinks that."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness.campaign import SHRUNK_ROUNDS, JudgingFault, chunks, rounds_of, shrink
from harness.errors import HarnessError, HarnessFault
from harness.failure import Failure
from harness.mutants import find
from harness.mutation import Planted
from harness.session import Session
from harness.te_mode import with_mutant
from harness.trial import Trial
from harness.violations import ORACLES

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from harness.backends.base import Backend
    from harness.trace import Trace
    from harness.trial import How
    from harness.verdict import Verdict

_SHRINK_AT_MOST = 150
"""Cases judged to shrink one: most are smallest after fewer, and there are hundreds of mutants."""

_DIRECTS_AT_ONCE = 25
"""Direct runs that are made for keeping before each mutant, at most: most are killed by an early case."""

_COMPARED = 25
"""Cases whose direct run is compared with that of TE without the mutant, where no case failed: of 8, the
rarest change of a direct run that has to be seen was in none."""


class Cases:
    """The cases of a campaign, in the order in which any campaign of that seed and number draws them.

    They are numbered from 1 on.

    Args:
        strategy: the domain.
        drawn: what ``record.draw`` gives of it: that takes seconds, and is done once for all workers.
        seed: with which they were drawn.
    """

    def __init__(self, strategy: SearchStrategy[c.Case], drawn: Sequence[c.Case], seed: int) -> None:
        self.strategy = strategy
        self._drawn = drawn
        self._chunks = list(chunks(len(drawn), seed))

    def __getitem__(self, number: int) -> c.Case:
        return self._drawn[number - 1]

    @property
    def numbers(self) -> range:
        """The cases' numbers."""
        return range(1, len(self._drawn) + 1)

    def chunk_of(self, number: int) -> tuple[int, int, Sequence[c.Case]]:
        """Return the seed and size of a case's chunk, and the cases that are drawn before it there."""
        last = 0
        for seed, size in self._chunks:
            if number <= last + size:
                return seed, size, self._drawn[last : number - 1]
            last += size
        raise HarnessFault(f"there is no case {number}")


class Court:
    """Tries mutants in this process, on Transformer Engine as corrected."""

    def __init__(self, backend: Backend, cases: Cases, on_case: Callable[[int], None]) -> None:
        self._backend = backend
        self._cases = cases
        self._on_case = on_case
        self._session = Session(backend)
        # What the release lacks is found by trying, which must not be done under a mutant first.
        self._session.try_support(cases[number] for number in cases.numbers)
        self._lacking = self._session.lacking
        self._tainted = False
        self._directs: dict[int, Trace] = {}
        self._digests: dict[int, str] = {}

    def run_directly(self, number: int) -> None:
        """Run a case without a checkpoint and without any mutant, and keep the trace."""
        self._on_case(number)
        self._directs[number] = self._session.run_directly(self._cases[number])

    def require_health(self, number: int) -> None:
        """Judge a case without any mutant; raises HarnessFault where it does not hold."""
        self._on_case(number)
        verdict = self._session.judge(self._cases[number])
        if not verdict.held or verdict.direct_error is not None:
            raise HarnessFault(f"case {number} ({verdict.fingerprint}) does not hold without any mutant")

    def is_tainted(self, number: int) -> bool:
        """Tell whether this process no longer judges right: an earlier mutant has left something behind."""
        try:
            self.require_health(number)
        except Exception:
            return True
        return self._tainted

    def try_mutant(self, name: str, numbers: Sequence[int], directly: Container[int] | None = None) -> Trial:
        """Judge cases under a mutant until one fails; shrink that one.

        ``directly`` are the cases whose direct run has the mutant's lines, None for all. The direct run of
        any other case is as it is without the mutant, and is run once for all mutants.
        """
        started = time.monotonic()
        own = numbers if directly is None else directly
        try:
            # Before anything is planted: what a mutant leaves behind must not come into what is kept.
            missing = [number for number in numbers if number not in own and number not in self._directs]
            for number in missing[:_DIRECTS_AT_ONCE]:
                self.run_directly(number)
            with self._planted(name) as session:
                trial = self._try(session, name, numbers, own)
        except _StartError:
            trial = Trial(mutant=name, outcome="killed", by=("start",), case=1, reaching=len(numbers))
        if trial.case is not None:
            # What an earlier mutant left behind may show in this very case, and in the simplest one not.
            self._tainted = self._tainted or self.is_tainted(trial.case)
        if trial.outcome == "survived":
            changes = self._changes_direct(name, [number for number in numbers if number in own])
            trial = msgspec.structs.replace(trial, changes_direct=changes)
        return msgspec.structs.replace(trial, seconds=round(time.monotonic() - started, 3))

    def objections(self, name: str, numbers: Sequence[int]) -> dict[How, int]:
        """Return how many cases each oracle objects to under a mutant, up to the first that a second does."""
        counted: dict[How, int] = {}
        with self._planted(name) as session:
            for number in numbers:
                self._on_case(number)
                for how in self._objectors(session, number):
                    counted[how] = counted.get(how, 0) + 1
                if len(counted) > 1:
                    # What is asked is whether one objects alone; most times few cases show that it does not.
                    break
        return counted

    def _objectors(self, session: Session, number: int) -> tuple[How, ...]:
        try:
            return objectors(session.judge(self._cases[number]))
        except Exception:
            return ("fault",)

    @contextlib.contextmanager
    def _planted(self, name: str) -> Iterator[Session]:
        mutant = find(name)
        planted = Planted(mutant)
        if not mutant.in_correction:
            planted.plant()
            try:
                yield self._session
            finally:
                planted.remove()
            return
        # The correction itself is mutated: it is taken out, and applied anew under the mutant and after it.
        self._session.close()
        session = None
        try:
            try:
                session = Session(self._backend, with_mutant(name))
            except Exception as error:
                raise _StartError from error
            yield session
        finally:
            planted.remove()
            self._start_over(session)

    def _start_over(self, mutated: Session | None) -> None:
        """Take a mutated correction out, as far as it can be, and apply the right one."""
        try:
            if mutated is not None:
                mutated.close()
            self._session = Session(self._backend)
            self._tainted = self._session.lacking != self._lacking
        except Exception:
            self._tainted = True

    def _try(self, session: Session, name: str, numbers: Sequence[int], own: Container[int]) -> Trial:
        for number in numbers:
            self._on_case(number)
            killed = Trial(mutant=name, outcome="killed", case=number, reaching=len(numbers))
            direct = None if number in own else self._directs.get(number)
            try:
                verdict = session.judge(self._cases[number], direct)
            except Exception:
                return msgspec.structs.replace(killed, by=("fault",))
            by = objectors(verdict)
            if by:
                smallest = self._shrunk(session, number, verdict)
                return msgspec.structs.replace(killed, by=by, smallest=smallest)
        return Trial(mutant=name, outcome="survived" if numbers else "unreached", reaching=len(numbers))

    def _shrunk(self, session: Session, number: int, verdict: Verdict) -> c.Case:
        seed, size, before = self._cases.chunk_of(number)
        failure = Failure("killed", self._cases[number], verdict)
        known = dict.fromkeys((case.fingerprint for case in before), None)

        def judge(case: c.Case) -> Verdict:
            self._on_case(number)
            return session.judge(case)

        # The rounds are gone through once: each attempt goes on with the next round that has a failing case.
        rounds = rounds_of(seed, size)
        with contextlib.suppress(JudgingFault):
            for _ in range(SHRUNK_ROUNDS):
                failure = shrink(
                    judge,
                    self._cases.strategy,
                    rounds,
                    failure,
                    known,
                    kind=_killed,
                    most=_SHRINK_AT_MOST,
                    enough=_is_smallest,
                )
                if _is_smallest(failure.case):
                    break
        # A smaller case is a comfort; that there is one that fails is what counts.
        return failure.case

    def _changes_direct(self, name: str, numbers: Sequence[int]) -> bool:
        chosen = numbers[:: max(1, len(numbers) // _COMPARED)][:_COMPARED]
        for number in chosen:
            if number not in self._digests:
                self._digests[number] = self._direct_digest(self._session, number)
        with self._planted(name) as session:
            return any(self._direct_digest(session, number) != self._digests[number] for number in chosen)

    def _direct_digest(self, session: Session, number: int) -> str:
        self._on_case(number)
        return digest(session.run_directly(self._cases[number]))


class _StartError(HarnessError):
    """The correction could not be applied under a mutant."""


def objectors(verdict: Verdict) -> tuple[How, ...]:
    """Return what objects to a case: oracles in their order, or the direct run where no oracle does."""
    fired = {violation.oracle for violation in verdict.violations}
    by: tuple[How, ...] = tuple(oracle for oracle in ORACLES if oracle in fired)
    if not by and verdict.direct_error is not None:
        return ("direct run",)
    return by


def _is_smallest(case: c.Case) -> bool:
    """Tell whether a case has one module and one iteration, and no evaluation."""
    forwards = [step for step in case.schedule if isinstance(step, c.Forward | c.Evaluate)]
    return len(c.modules(case)) == len(forwards) == 1 and isinstance(forwards[0], c.Forward)


def _killed(_case: c.Case, verdict: Verdict) -> str | None:
    """Return one kind for whatever objects: the smallest case may kill a mutant in another way."""
    return "killed" if objectors(verdict) else None


def digest(trace: Trace) -> str:
    """Return a hash of all tensors and the error of a trace."""
    hashed = hashlib.sha256(repr(trace.error).encode())
    for key, tensor in trace.tensors.items():
        hashed.update(repr(key).encode())
        if tensor is not None:
            hashed.update(tensor.detach().cpu().contiguous().view(-1).float().numpy().tobytes())
    return hashed.hexdigest()
