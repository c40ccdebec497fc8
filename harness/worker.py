"""A worker of a campaign: judges the cases of a chunk, and sends what comes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from harness import corpus, leases
from harness.campaign import run_chunk
from harness.errors import DeviceLost, ReleaseLacks
from harness.failure import Failure, kind_of, known_in
from harness.messages import Chunk, Counted, Done, Failed, Lost, Message, Ready, telling
from harness.tally import Tally

if TYPE_CHECKING:
    from harness import case as c
    from harness.inflight import InFlight
    from harness.plan import Plan
    from harness.verdict import Verdict

_FLUSH_SECONDS = 0.2

Send: TypeAlias = Callable[[Message], None]


class _Worker:
    """Judges chunks, and sends what comes of them."""

    def __init__(self, plan: Plan, send: Send, flight: InFlight | None) -> None:
        from strategies.domains import DOMAINS

        self._plan = plan
        self._send = send
        domain = DOMAINS[plan.domain]
        self._strategy = domain.strategy()
        self._promised = domain.promised
        self._issues = known_in(domain)
        self._session = plan.target.open()
        self._announce: Callable[[Sequence[c.Case]], None] = lambda _cases: None
        if flight is not None:
            self._session.noted, self._announce = flight.judging, flight.announce
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
                skipped=chunk.skipped,
                announce=self._announce,
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


def serve(
    plan: Plan, send: Send, next_chunk: Callable[[], Chunk | None], flight: InFlight | None = None
) -> None:
    """Judge chunks until there are no more.

    Args:
        plan: the campaign.
        send: takes what is to be said.
        next_chunk: returns the next chunk; None when there are no more.
        flight: where each case is noted before it is judged, so that it can be named should this process end.
    """
    try:
        with telling(send):
            leases.bind(plan.target.backend)
            worker = _Worker(plan, send, flight)
            while (chunk := next_chunk()) is not None:
                worker.judge(chunk)
    except DeviceLost as lost:
        send(Lost(lost.how))
