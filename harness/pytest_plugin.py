"""The pytest side: options, Hypothesis profiles, one session per process, sharded properties.

Load it with ``pytest_plugins = ["harness.pytest_plugin"]`` in a root ``conftest.py``. The backend is made
active when pytest is configured, before any test module can import Transformer Engine.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hypothesis
import pytest
from hypothesis import HealthCheck

from harness import backends
from harness.errors import CannotRunHere, HarnessError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from harness.case import Case
    from harness.session import Session, TeMode

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
    """What the command line asked for."""

    backend: str
    te_mode: TeMode
    cases: int
    checkpointer: str | None
    seed: int
    corpus: Path


_OPTIONS = pytest.StashKey[Options]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the harness's options."""
    group = parser.getgroup("te-harness", "FP8 activation checkpointing")
    group.addoption("--backend", choices=("auto", "cpu", "cuda"), default="auto", help="where TE runs")
    group.addoption(
        "--te",
        choices=("corrected", "installed"),
        default="corrected",
        help="apply the fix to a TE that lacks it, or take TE as it is",
    )
    group.addoption("--cases", type=_positive, help="cases per property, over all shards")
    group.addoption("--checkpointer", metavar="MODULE:FUNCTION", help="test this instead of te.checkpoint")
    group.addoption("--seed", type=int, help="seed of the properties; printed in the header")
    group.addoption("--corpus", type=Path, default=Path("corpus"), help="where failing cases are saved")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the default profile, make the backend active, and settle the seed."""
    config.addinivalue_line("markers", "emulation: exercises the emulated kernels; not for real ones")
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("dev")
    given = config.getoption("--seed")
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        given = worker["te_harness_seed"]
    config.stash[_OPTIONS] = Options(
        backend=config.getoption("--backend"),
        te_mode=cast("TeMode", config.getoption("--te")),
        cases=config.getoption("--cases") or 0,
        checkpointer=config.getoption("--checkpointer"),
        seed=secrets.randbits(31) if given is None else given,
        corpus=config.rootpath / config.getoption("--corpus"),
    )
    try:
        backends.activate(config.stash[_OPTIONS].backend)
    except CannotRunHere as error:
        pytest.exit(str(error), returncode=error.exit_code)
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_configure_node(node: Any) -> None:
    """Hand the controller's seed to an xdist worker."""
    node.workerinput["te_harness_seed"] = node.config.stash[_OPTIONS].seed


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what runs where, and what replays the random tests."""
    options = config.stash[_OPTIONS]
    backend = backends.active()
    return [
        f"te-harness: TE {backends.te_version()} ({options.te_mode}) on {backend.name}: {backend.reason}",
        f"te-harness: random tests replay with --seed={options.seed}",
    ]


@pytest.fixture(scope="session")
def te_session(pytestconfig: pytest.Config) -> Session:
    """Return the process's session, as the command line wants it."""
    from harness.session import Session, load_checkpointer

    options = pytestconfig.stash[_OPTIONS]
    return Session(backends.active(), options.te_mode, load_checkpointer(options.checkpointer))


@pytest.fixture
def check_property(
    te_session: Session, pytestconfig: pytest.Config
) -> Callable[[SearchStrategy[Case], int], None]:
    """Return a function that judges one shard's share of a domain, and fails with every shrunk failure."""
    from harness.campaign import run_chunk
    from harness.corpus import save_failure
    from harness.report import failure_text

    options = pytestconfig.stash[_OPTIONS]
    profile = hypothesis.settings()
    cases = options.cases or profile.max_examples
    base = _CI_SEED if profile.derandomize and pytestconfig.getoption("--seed") is None else options.seed

    def check(strategy: SearchStrategy[Case], shard: int) -> None:
        share = cases // SHARDS + (shard < cases % SHARDS)
        if not share:
            return
        failures = run_chunk(
            te_session.judge, strategy, base * SHARDS + shard, share, lambda _case, _verdict: None
        )
        if failures:
            texts = [failure_text(failure, save_failure(options.corpus, failure)) for failure in failures]
            pytest.fail("\n\n".join(texts), pytrace=False)

    return check
