"""The pytest side: options, Hypothesis profiles, one session per process, sharded properties.

Load it with ``pytest_plugins = ["harness.pytest_plugin"]`` in a root ``conftest.py``. The backend is made
active when pytest is configured, before any test module can import Transformer Engine.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import HealthCheck

from harness import backends
from harness.database import open_database, setting_of
from harness.errors import HarnessError, ReleaseLacks
from harness.exits import warn
from harness.target import Target
from harness.te_mode import is_te_mode

if TYPE_CHECKING:
    from harness.campaign import Failure
    from harness.session import Session
    from strategies.domains import Domain

SHARDS = 32
"""Tests that a property is split into: more than workers, so that none waits long for the last."""

_CI_SEED = 0
_PROFILES = {"dev": 320, "ci": 640, "nightly": 20_000}
"""Cases per property of each Hypothesis profile, over all shards."""

for _name, _cases in _PROFILES.items():
    hypothesis.settings.register_profile(
        _name,
        max_examples=_cases,
        deadline=None,
        derandomize=_name == "ci",
        database=None if _name == "ci" else hypothesis.settings().database,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@dataclass(frozen=True)
class Options:
    """What the command line asked for. ``cases`` is the number for each property, None the profile's."""

    target: Target
    cases: int | None
    seed: int
    corpus: Path


_OPTIONS = pytest.StashKey[Options]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the harness's options."""
    group = parser.getgroup("te-harness", "FP8 activation checkpointing")
    group.addoption("--backend", choices=("auto", "cpu", "cuda"), default="auto", help="where TE runs")
    group.addoption(
        "--te",
        type=_te_mode,
        metavar="MODE",
        default="corrected",
        help="corrected: apply the fix to a TE that lacks it; installed: take TE as it is;"
        " mutant:ID: corrected, with that fault planted",
    )
    group.addoption("--cases", type=_positive, help="cases per property, over all shards")
    group.addoption("--checkpointer", metavar="MODULE:FUNCTION", help="test this instead of te.checkpoint")
    group.addoption("--seed", type=int, help="seed of the properties; printed in the header")
    group.addoption("--corpus", type=Path, default=Path("corpus"), help="where failing cases are saved")
    group.addoption(
        "--database",
        metavar="URL",
        help="Hypothesis's example database: a folder, redis://HOST:PORT/NUMBER, github:OWNER/REPO[/ARTIFACT]"
        " or none; TE_HARNESS_DATABASE if not given",
    )


def _te_mode(text: str) -> str:
    if not is_te_mode(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of corrected, installed and mutant:ID")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the default profile, make the backend active, and settle the seed."""
    config.addinivalue_line("markers", "emulation: exercises the emulated kernels; not for real ones")
    try:
        _use_database(config.getoption("--database"))
    except HarnessError as error:
        pytest.exit(str(error), returncode=error.exit_code)
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("dev")
    config.stash[_OPTIONS] = Options(
        target=Target(
            backend=config.getoption("--backend"),
            te_mode=config.getoption("--te"),
            checkpointer=config.getoption("--checkpointer"),
        ),
        cases=config.getoption("--cases"),
        seed=_seed(config),
        corpus=config.rootpath / config.getoption("--corpus"),
    )
    try:
        backends.activate(config.getoption("--backend"))
        config.stash[_OPTIONS].target.check()
        if config.getoption("--checkpointer"):
            config.stash[_OPTIONS].target.open()
    except HarnessError as error:
        pytest.exit(str(error), returncode=error.exit_code)


def _use_database(option: str | None) -> None:
    """Have Hypothesis keep its examples where the setting says; the profile ci keeps none anywhere."""
    if setting_of(option) is None:
        return
    database = open_database(option, warn)
    for name in _PROFILES:
        if name != "ci":
            hypothesis.settings.register_profile(
                name, hypothesis.settings.get_profile(name), database=database
            )


def _seed(config: pytest.Config) -> int:
    """Return the controller's seed in a worker, else the one asked for, else the profile's or a fresh one."""
    if hasattr(config, "workerinput"):
        return int(config.workerinput["te_harness_seed"])
    given = config.getoption("--seed")
    if given is not None:
        return int(given)
    profile = config.getoption("--hypothesis-profile", None)
    fixed = profile is not None and hypothesis.settings.get_profile(profile).derandomize
    return _CI_SEED if fixed else secrets.randbits(31)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the controller's seed to an xdist worker."""
    node.workerinput["te_harness_seed"] = node.config.stash[_OPTIONS].seed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:  # noqa: ARG001
    """Skip a test that needs what the installed release lacks, and say what that is."""
    try:
        return (yield)
    except ReleaseLacks as error:
        pytest.skip(str(error))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what runs where, and what replays the random tests."""
    options = config.stash[_OPTIONS]
    backend = backends.active()
    te = f"TE {backends.te_version()} ({options.target.te_mode})"
    return [
        f"te-harness: {te} on {backend.name}: {backend.reason}",
        f"te-harness: random tests replay with --seed={options.seed}",
    ]


@pytest.fixture(scope="session")
def te_session(pytestconfig: pytest.Config) -> Session:
    """Return the process's session, as the command line wants it."""
    return pytestconfig.stash[_OPTIONS].target.open()


@pytest.fixture
def check_property(te_session: Session, pytestconfig: pytest.Config) -> Callable[[Domain, int], None]:
    """Return a function that judges one shard's share of a domain, and fails with every shrunk failure."""
    from harness import corpus
    from harness.campaign import JudgingFault, known_in, run_chunk
    from harness.report import failure_text

    options = pytestconfig.stash[_OPTIONS]
    cases = options.cases or hypothesis.settings().max_examples
    first_seed = options.seed * SHARDS
    where = options.target.where(te_session)

    def told(failure: Failure, found: corpus.Found) -> str:
        path = corpus.save_failure(options.corpus, failure, where, found)
        return failure_text(failure, path, options.target.replay_command(path))

    def check(domain: Domain, shard: int) -> None:
        share = cases // SHARDS + (shard < cases % SHARDS)
        seed = first_seed + shard
        if not share:
            return
        judged: list[str] = []
        lacking: list[ReleaseLacks] = []
        try:
            failures = run_chunk(
                te_session.judge,
                domain.strategy(),
                seed,
                share,
                lambda case, _: judged.append(case.fingerprint),
                refused=lacking.append,
                promised=domain.promised,
                issues=known_in(domain),
            )
        except JudgingFault as fault:
            saved = corpus.SavedCase(case=fault.case, why=f"the harness failed: {fault}", where=where)
            path = corpus.save(options.corpus / "faults", saved)
            fault.args = (f"{fault}; replay with: {options.target.replay_command(path)}",)
            raise
        if failures:
            found = corpus.Found(seed=seed, domain=domain.name)
            pytest.fail("\n\n".join(told(failure, found) for failure in failures), pytrace=False)
        if not judged:
            raise lacking[0]

    return check
