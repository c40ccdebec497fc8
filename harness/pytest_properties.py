"""Properties under pytest: each is split into shards, and a shard judges its share of a domain's cases."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import hypothesis
import pytest

from harness.errors import ReleaseLacks
from harness.pytest_crashes import LOGBOOK
from harness.pytest_options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.campaign import Failure, JudgingFault
    from harness.logbook import Logbook
    from harness.pytest_options import Options
    from harness.session import Session
    from strategies.domains import Domain

SHARDS = 32
"""Tests that a property is split into: more than workers, so that none waits long for the last."""

_UNLIMITED = 10**7
"""Cases of one shard, where time is what limits it."""


@pytest.fixture(scope="session")
def te_session(pytestconfig: pytest.Config) -> Session:
    """Return the process's session, as the command line wants it."""
    session = pytestconfig.stash[OPTIONS].target.open()
    pytestconfig.stash[LOGBOOK].open(session, pytestconfig.stash[OPTIONS].target)
    return session


@pytest.fixture
def check_property(
    te_session: Session, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> Callable[[Domain, int], None]:
    """Return a function that judges one shard's share of a domain, and fails with every shrunk failure."""
    options = pytestconfig.stash[OPTIONS]
    seconds = _seconds(options, request)

    def check(domain: Domain, shard: int) -> None:
        _Shard(te_session, options, pytestconfig.stash[LOGBOOK], domain, shard).check(seconds)

    return check


def _seconds(options: Options, request: pytest.FixtureRequest) -> float | None:
    """Return a shard's part of the time: as if all shards took turns on the workers."""
    if options.seconds is None:
        return None
    shards = sum("check_property" in getattr(item, "fixturenames", ()) for item in request.session.items)
    workers = int(getattr(request.config, "workerinput", {}).get("workercount", 1))
    return options.seconds * min(1.0, workers / shards)


class _Shard:
    """One shard of a property."""

    def __init__(
        self, session: Session, options: Options, logbook: Logbook, domain: Domain, number: int
    ) -> None:
        self._session = session
        self._options = options
        self._logbook = logbook
        self._domain = domain
        from harness import corpus

        self._seed = options.seed * SHARDS + number
        self._found = corpus.Found(seed=self._seed, domain=domain.name)
        self._share = _UNLIMITED
        if options.cases is not None or options.seconds is None:
            cases = options.cases or hypothesis.settings().max_examples
            self._share = cases // SHARDS + (number < cases % SHARDS)
        self._judged = 0
        self._lacking: ReleaseLacks | None = None
        self._failures: dict[str, Failure] = {}

    def check(self, seconds: float | None) -> None:
        """Judge the share, or as much of it as the time allows; fail with every shrunk failure."""
        from harness.campaign import chunks

        deadline = None if seconds is None else time.monotonic() + seconds
        with self._logbook.drawing(self._found):
            for seed, cases in chunks(self._share, self._seed):
                if deadline is not None and time.monotonic() > deadline:
                    break
                self._judge(seed, cases, deadline)
        if self._failures:
            pytest.fail("\n\n".join(map(self._told, self._failures.values())), pytrace=False)
        if self._lacking and not self._judged:
            raise self._lacking

    def _judge(self, seed: int, cases: int, deadline: float | None) -> None:
        """Judge a chunk, and keep the smallest failure of each kind."""
        from harness.campaign import JudgingFault, known_in, run_chunk, size_of

        try:
            failures = run_chunk(
                self._session.judge,
                self._domain.strategy(),
                seed,
                cases,
                self._count,
                deadline,
                refused=self._refuse,
                promised=self._domain.promised,
                issues=known_in(self._domain),
                skipped=self._logbook.crashed(),
            )
        except JudgingFault as fault:
            self._keep(fault)
            raise
        for failure in failures:
            known = self._failures.setdefault(failure.kind, failure)
            if size_of(failure.case) < size_of(known.case):
                self._failures[failure.kind] = failure

    def _count(self, _case: object, _verdict: object) -> None:
        self._judged += 1

    def _refuse(self, error: ReleaseLacks) -> None:
        self._lacking = self._lacking or error

    def _keep(self, fault: JudgingFault) -> None:
        """Save the case on which the harness failed, and say where."""
        from harness import corpus

        where = self._options.target.where(self._session)
        saved = corpus.SavedCase(case=fault.case, why=f"the harness failed: {fault}", where=where)
        path = corpus.save(self._options.corpus / "faults", saved)
        fault.args = (f"{fault}; replay with: {self._options.target.replay_command(path)}",)

    def _told(self, failure: Failure) -> str:
        """Save a failure, and return all that a person needs of it."""
        from harness import corpus
        from harness.report import failure_text

        target = self._options.target
        path = corpus.save_failure(self._options.corpus, failure, target.where(self._session), self._found)
        return failure_text(failure, path, target.replay_command(path))
