from __future__ import annotations

from typing import Any

import pytest

from harness import backends, gpus


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
