"""The pytest side of GPUs: how many workers ``-n auto`` starts, and to which GPU each process is bound."""

from __future__ import annotations

import os

import pytest

from harness import gpus, leases


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return how many workers share the GPUs; None leaves it to pytest-xdist, which counts cores."""
    if config.getoption("numprocesses") != "auto" or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    found = gpus.visible(config.getoption("--backend"))
    return gpus.workers_for(found, gpus.cores()) if found else None


def bind(config: pytest.Config) -> None:
    """Bind this process to a GPU, before the backend starts in it.

    The one that hands the tests to others runs none, and takes nobody's place. Raises CannotRunHere.
    """
    hands_out = bool(config.getoption("tx", None)) and not hasattr(config, "workerinput")
    if not hands_out:
        leases.bind(config.getoption("--backend"))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which GPUs are used, where there are any."""
    found = gpus.visible(config.getoption("--backend"))
    return [f"te-harness: {gpus.described(found)}"] if found else []
