"""Draws cases of a domain, judges each and shrinks what fails.

A campaign is cut into chunks, each with a seed of its own, so that a campaign's cases follow from its seed
and number alone, however many workers share the chunks. A chunk is drawn in rounds, each a Hypothesis run.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from harness import case as c
from harness.errors import HarnessFault, ReleaseLacks
from harness.failure import Failure, kind_of, size_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from harness.known_issues import Issue
    from harness.verdict import Verdict

CHUNK = 100
"""Cases a worker is given at a time: many, since each kind of failure is shrunk once per chunk, but not so
many that workers wait for the last."""

ROUND = 10
"""Cases per Hypothesis run. After its first ten, Hypothesis mostly mutates what it has drawn instead of
drawing anew: of the mutants that few cases kill, 500 cases in runs of ten kill more than in runs of a hundred
(measured with Hypothesis 6.170)."""

_MOST_CHUNKS = 1_000_000
"""How far apart the chunks of neighbouring seeds are, so that they share none."""

_MOST_ROUNDS = 1_000
"""The same of the rounds of neighbouring chunks."""

_DRAWS_PER_CASE = 3
"""Room for draws that repeat a case: those are not judged again."""

SHRUNK_ROUNDS = 3
"""Rounds in which a kind of failure is shrunk, where it came in so many."""

Observer: TypeAlias = Callable[[c.Case, "Verdict"], None]
Judge: TypeAlias = Callable[[c.Case], "Verdict"]
Refused: TypeAlias = Callable[[ReleaseLacks], None]


class Violated(AssertionError):
    """Raised while shrinking for a case that fails in the wanted way."""


class JudgingFault(HarnessFault):
    """The harness failed while it judged a case, which is kept so that the fault can be replayed."""

    def __init__(self, case: c.Case, cause: Exception) -> None:
        super().__init__(f"case {case.fingerprint}: {type(cause).__name__}: {cause}")
        self.case = case
        self.cause = cause


class _Stop(BaseException):
    """The campaign's time is up, or the harness itself failed: Hypothesis must pass it on, and not shrink."""


def chunks(cases: int, seed: int, shard: tuple[int, int] = (1, 1)) -> Iterator[tuple[int, int]]:
    """Yield (seed, number of cases) of each chunk of a campaign, or of one shard of it: the I-th of N.

    Chunks go to the shards in turn, so that shards share no seed and are of one size but for a chunk.
    """
    index, of = shard
    for start in range((index - 1) * CHUNK, cases, of * CHUNK):
        yield seed * _MOST_CHUNKS + start // CHUNK, min(CHUNK, cases - start)


def run_chunk(
    judge: Judge,
    strategy: SearchStrategy[c.Case],
    seed: int,
    cases: int,
    observe: Observer,
    deadline: float | None = None,
    refused: Refused | None = None,
    *,
    promised: bool = True,
    issues: Sequence[Issue] = (),
    skipped: Collection[str] = (),
    announce: Callable[[Sequence[c.Case]], None] = lambda _cases: None,
) -> list[Failure]:
    """Judge ``cases`` different cases drawn with ``seed``; return the shrunk failures, one per kind.

    A failure does not end the drawing, so that one fault does not hide another: a round's cases are drawn
    first, and then judged. Each kind is shrunk afterwards, in a run of its own that draws the same cases
    again and fails on that kind alone.

    Args:
        judge: judges a case.
        strategy: the domain.
        seed: the same seed and number draw the same cases.
        cases: how many to draw, fewer where the domain has fewer; shrinking judges more, unobserved.
        observe: called with each drawn case that was judged, and its verdict.
        deadline: ``time.monotonic()`` after which no further case is drawn; None for no limit.
        refused: called for each drawn case that the installed release cannot run, with the reason;
            without it such a case is a fault.
        promised: whether equality is promised of every case of the domain.
        issues: known issues, which make no failure.
        skipped: fingerprints of cases that are drawn and not judged, for they end the process.
        announce: called with the cases that are judged next, a round's at a time.

    Raises:
        JudgingFault: whatever ``judge`` raised, with the case; or the direct run raised, which no case of a
            promising domain may do, and which would let the case hold for nothing.
    """
    kinds: dict[str, str | None] = {}
    # Of each kind, the smallest failure of each round.
    found: dict[str, dict[int, Failure]] = {}

    def judge_drawn(case: c.Case) -> None:
        try:
            verdict = judge(case)
        except ReleaseLacks as error:
            if refused is None:
                raise
            refused(error)
            return
        _require_direct_run(verdict, promised=promised)
        observe(case, verdict)
        kind = kinds[case.fingerprint] = kind_of(case, verdict, issues)
        if kind is not None:
            failures = found.setdefault(kind, {})
            failure = Failure(kind, case, verdict)
            failures[round_seed] = min(failures.get(round_seed, failure), failure, key=_size)

    for round_seed in rounds_of(seed, cases):
        if len(kinds) == cases or _is_past(deadline):
            break
        # What is not judged counts as drawn: with the same seed, every release draws the same cases.
        drawn = _draw(strategy, round_seed, min(ROUND, cases - len(kinds)), kinds)
        to_judge = [case for case in drawn if case.fingerprint not in skipped]
        announce(to_judge)
        for case in to_judge:
            if _is_past(deadline):
                break
            with _faults_of(case):
                judge_drawn(case)
    # Some come up in the shrinking alone.
    kinds |= dict.fromkeys(skipped)
    kind = partial(kind_of, issues=issues)
    return [_shrink_kind(judge, strategy, failures, kinds, kind) for _, failures in sorted(found.items())]


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _draw(
    strategy: SearchStrategy[c.Case], seed: int, most: int, kinds: dict[str, str | None]
) -> list[c.Case]:
    """Draw at most so many cases that are not in ``kinds`` yet, in one round, and add them there."""
    drawn: list[c.Case] = []

    def keep(case: c.Case) -> None:
        if len(drawn) == most:
            raise _Stop
        if case.fingerprint not in kinds:
            kinds[case.fingerprint] = None
            drawn.append(case)

    _run(keep, strategy, seed)
    return drawn


@contextlib.contextmanager
def _faults_of(case: c.Case) -> Iterator[None]:
    """Tell of whatever goes wrong within with the case."""
    try:
        yield
    except Exception as error:
        raise JudgingFault(case, error) from error


def _require_direct_run(verdict: Verdict, *, promised: bool) -> None:
    if promised and verdict.direct_error is not None and verdict.held:
        raise HarnessFault(f"the direct run raised {verdict.direct_error.type}: no case of its domain")


def _shrink_kind(
    judge: Judge,
    strategy: SearchStrategy[c.Case],
    failures: dict[int, Failure],
    known: dict[str, str | None],
    kind: Callable[[c.Case, Verdict], str | None],
) -> Failure:
    """Shrink one kind of failure, given the smallest of each round in which it came."""
    # One that is small already may lead where a large one does not.
    rounds = sorted(failures, key=lambda number: _size(failures[number]))[:SHRUNK_ROUNDS]
    smallest = failures[rounds[0]]
    for round_seed in rounds:
        smallest = shrink(judge, strategy, [round_seed], smallest, known, kind)
    return smallest


def shrink(
    judge: Judge,
    strategy: SearchStrategy[c.Case],
    rounds: Iterable[int],
    failure: Failure,
    known: dict[str, str | None],
    kind: Callable[[c.Case, Verdict], str | None] = kind_of,
    most: int | None = None,
    enough: Callable[[c.Case], bool] = lambda _case: False,
) -> Failure:
    """Return the smallest case found that fails in the same way, in the first round that has one.

    Args:
        judge: judges a case.
        strategy: the domain.
        rounds: the seeds of the rounds in which to look for it; an iterator keeps the rest for
            another call.
        failure: what to shrink, and the smallest so far.
        known: the kinds of the cases judged so far, by fingerprint; what is judged here is added.
        kind: tells the kind of a failure from a case and its verdict.
        most: how many cases to judge at most; None for no limit.
        enough: tells of a case that it is small enough, which ends the search.
    """
    smallest = failure
    judged = 0

    def fail(case: c.Case) -> None:
        nonlocal smallest, judged
        fingerprint = case.fingerprint
        if fingerprint in known and known[fingerprint] != failure.kind:
            return
        if judged == most:
            raise _Stop
        judged += 1
        try:
            verdict = judge(case)
        except ReleaseLacks:
            return
        known[fingerprint] = kind(case, verdict)
        if known[fingerprint] == failure.kind:
            smallest = min(smallest, Failure(failure.kind, case, verdict), key=_size)
            if enough(smallest.case):
                raise _Stop
            raise Violated(failure.kind)

    for round_seed in rounds:
        if _run(fail, strategy, round_seed):
            break
    return smallest


def rounds_of(seed: int, cases: int) -> Iterator[int]:
    """Yield the seeds of a chunk's rounds: twice as many as are needed where no round repeats a case."""
    for number in range(2 * math.ceil(cases / ROUND)):
        yield seed * _MOST_ROUNDS + number


def _run(test: Callable[[c.Case], None], strategy: SearchStrategy[c.Case], seed: int) -> bool:
    """Let Hypothesis draw, and shrink where the test raises Violated; anything else ends it at once.

    Return whether the test had enough: it was violated, or it stopped.
    """
    fault: JudgingFault | None = None

    def guarded(case: c.Case) -> None:
        nonlocal fault
        try:
            test(case)
        except Violated:
            raise
        except Exception as error:
            fault = JudgingFault(case, error)
            raise _Stop from error

    try:
        hypothesis.seed(seed)(_settings()(hypothesis.given(strategy)(guarded)))()
    except (Violated, hypothesis.errors.Flaky):
        # A failure that does not come again when Hypothesis repeats it is still what was seen.
        return True
    except _Stop:
        if fault is not None:
            raise fault from fault.cause
        return True
    return False


def _settings() -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=_DRAWS_PER_CASE * ROUND,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


def _size(failure: Failure) -> tuple[int, bytes]:
    return size_of(failure.case)
