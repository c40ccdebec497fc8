"""The pytest side: options, Hypothesis profiles, one backend per process.

Load it with ``pytest_plugins = ["harness.pytest_plugin"]`` in a root ``conftest.py``. The backend is made
active when pytest is configured, before any test module can import Transformer Engine.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck

from harness import backends
from harness.database import open_database, setting_of
from harness.errors import HarnessError, ReleaseLacks
from harness.exits import warn
from harness.pytest_options import OPTIONS, add_options, options_of

pytest_plugins = [
    # What others of these import comes before them: pytest looks into each as it registers it.
    "harness.pytest_events",
    "harness.pytest_crashes",
    "harness.pytest_gpus",
    "harness.pytest_properties",
    "harness.pytest_replay",
]

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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the harness's options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the default profile, make the backend active, and settle the seed."""
    from harness import pytest_gpus

    config.addinivalue_line("markers", "emulation: exercises the emulated kernels; not for real ones")
    try:
        _use_database(config.getoption("--database"))
    except HarnessError as error:
        pytest.exit(str(error), returncode=error.exit_code)
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("dev")
    options = config.stash[OPTIONS] = options_of(config, _seed(config))
    try:
        pytest_gpus.bind(config)
        backends.activate(options.target.backend)
        options.target.check()
        if options.target.checkpointer:
            options.target.open()
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
    node.workerinput["te_harness_seed"] = node.config.stash[OPTIONS].seed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:  # noqa: ARG001
    """Skip a test that needs what the installed release lacks, and say what that is."""
    try:
        return (yield)
    except ReleaseLacks as error:
        pytest.skip(str(error))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what runs where, and what replays the random tests."""
    options = config.stash[OPTIONS]
    backend = backends.active()
    te = f"TE {backends.te_version()} ({options.target.te_mode})"
    return [
        f"te-harness: {te} on {backend.name}: {backend.reason}",
        f"te-harness: random tests replay with --seed={options.seed}",
    ]
