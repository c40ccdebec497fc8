from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from harness import backends, gpus

if TYPE_CHECKING:
    from harness.session import Session


@pytest.fixture
def bare_session(te_session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """The session without the journal, of which ``test_journaling`` tells the price.

    A campaign flushes one note to the disk for a whole round of cases; a case judged by itself would have
    a flush of its own.
    """
    monkeypatch.setattr(te_session, "noted", lambda _case: contextlib.nullcontext())
    return te_session


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Keep of what pytest-benchmark records what the figures depend on, and nothing that names a host."""
    processor = machine_info.get("cpu", {}).get("brand_raw", "unknown")
    machine_info.clear()
    machine_info.update(backends.active().describe(), processor=processor, cores=gpus.cores())


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Leave out the single times: the figures of the page are ratios, which stand beside them."""
    output_json.pop("commit_info", None)
    for entry in output_json["benchmarks"]:
        entry["stats"].pop("data", None)
