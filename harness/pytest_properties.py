"""Properties under pytest: each is split into shards, and a shard judges its share of a domain's cases."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import hypothesis
import pytest

from harness.errors import ReleaseLacks
from harness.exits import warn
from harness.pytest_crashes import LOGBOOK
from harness.pytest_events import RECORDER
from harness.pytest_options import OPTIONS
from harness.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import case as c
    from harness.campaign import JudgingFault
    from harness.failure import Failure
    from harness.pytest_options import Options
    from harness.session import Session
    from harness.verdict import Verdict
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
    pytestconfig.stash[RECORDER].open(session)
    return session


@pytest.fixture
def check_property(
    te_session: Session, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> Callable[[Domain, int], None]:
    """Return a function that judges one shard's share of a domain, and fails with every shrunk failure."""
    options = pytestconfig.stash[OPTIONS]
    seconds = _seconds(options, request)

    def check(domain: Domain, shard: int) -> None:
        _Shard(te_session, pytestconfig, domain, shard).check(seconds)

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

    def __init__(self, session: Session, config: pytest.Config, domain: Domain, number: int) -> None:
        from harness import corpus
        from harness.failure import known_in
        from harness.finds import Finds

        self._session = session
        self._options = options = config.stash[OPTIONS]
        self._logbook = config.stash[LOGBOOK]
        self._recorder = config.stash[RECORDER]
        self._issues = known_in(domain)
        self._finds = Finds(hypothesis.settings().database, warn)
        self._domain = domain
        self._number = number

        self._seed = options.seed * SHARDS + number
        self._found = corpus.Found(seed=self._seed, domain=domain.name)
        self._share = _UNLIMITED
        if options.cases is not None or options.seconds is None:
            cases = options.cases or hypothesis.settings().max_examples
            self._share = cases // SHARDS + (number < cases % SHARDS)
        self._tally = Tally()
        self._lacking: ReleaseLacks | None = None
        self._failures: dict[str, Failure] = {}
        self._shared: set[str] = set()

    def check(self, seconds: float | None) -> None:
        """Judge the share, or as much of it as the time allows; fail with every shrunk failure."""
        from harness.campaign import chunks

        begun = time.time()
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._logbook.drawing(self._found):
            self._judge_finds()
            for seed, cases in chunks(self._share, self._seed):
                if deadline is not None and time.monotonic() > deadline:
                    break
                self._judge(seed, cases, deadline)
        self._recorder.judged(self._domain.name, self._tally, begun)
        if self._failures:
            pytest.fail("\n\n".join(map(self._told, self._failures.values())), pytrace=False)
        if self._lacking and not self._tally.cases:
            raise self._lacking
        if seconds is not None and not self._tally.cases:
            pytest.skip(f"no case was judged in this shard's {seconds:.2g} seconds; give it more --seconds")

    def _judge_finds(self) -> None:
        """Judge this shard's part of what other runs have found and shared, and drop what is fixed."""
        from harness.again import concerning, is_fixed

        where = self._options.target.where(self._session)
        crashed = self._logbook.crashed()
        for saved in concerning(self._finds.of(self._domain.name), self._options.target)[
            self._number :: SHARDS
        ]:
            # What ends its process is judged in one of its own: by te-harness fuzz.
            if saved.seen.ending or saved.case.fingerprint in crashed:
                continue
            self._shared.add(saved.case.fingerprint)
            try:
                verdict = self._session.judge(saved.case)
            except ReleaseLacks:
                continue
            except Exception as error:
                # Failing every run of a fleet is not for one case of a stranger to do.
                warn(f"{saved.case.fingerprint}: {type(error).__name__}: {error}")
                continue
            if is_fixed(saved, verdict, where):
                self._finds.remove(self._domain.name, saved)
            self._fail(saved.case, verdict)

    def _fail(self, case: c.Case, verdict: Verdict) -> None:
        """Keep a case where it fails, and is the smallest of its kind."""
        from harness.failure import Failure, kind_of, size_of

        kind = kind_of(case, verdict, self._issues)
        if kind is not None:
            known = self._failures.get(kind)
            if known is None or size_of(case) < size_of(known.case):
                self._failures[kind] = Failure(kind, case, verdict)

    def _judge(self, seed: int, cases: int, deadline: float | None) -> None:
        """Judge a chunk, and keep the smallest failure of each kind."""
        from harness.campaign import JudgingFault, run_chunk

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
                issues=self._issues,
                skipped=self._logbook.crashed(),
                announce=self._logbook.announce,
            )
        except JudgingFault as fault:
            self._keep(fault)
            raise
        for failure in failures:
            self._fail(failure.case, failure.verdict)

    def _count(self, case: c.Case, verdict: Verdict) -> None:
        self._tally.count(case, verdict, self._issues)

    def _refuse(self, error: ReleaseLacks) -> None:
        self._tally.lacking[error.what] += 1
        self._lacking = self._lacking or error

    def _keep(self, fault: JudgingFault) -> None:
        """Save the case on which the harness failed, and say where."""
        from harness import corpus

        where = self._options.target.where(self._session)
        saved = corpus.SavedCase(case=fault.case, why=f"the harness failed: {fault}", where=where)
        path = corpus.save(self._options.corpus / "faults", saved)
        fault.args = (f"{fault}; replay with: {self._options.target.replay_command(path)}",)
        self._recorder.fault(fault)

    def _told(self, failure: Failure) -> str:
        """Save a failure, and return all that a person needs of it."""
        from harness import corpus
        from harness.report import failure_text

        target = self._options.target
        saved = corpus.from_failure(failure, target.where(self._session), self._found)
        path = corpus.save(self._options.corpus, saved)
        shared = failure.case.fingerprint in self._shared
        self._recorder.failed(self._domain.name, failure.kind, saved, path, shared=shared)
        self._finds.add(self._domain.name, saved)
        return failure_text(failure, path, target.replay_command(path))
