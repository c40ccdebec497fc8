"""pytest's workers share the GPUs of a host, here one that is made up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness import gpus, pytest_gpus
from tests.harness.fake_nvml import GIB, Device, FakeNvml

_CONFTEST = """
import os, sys
from pathlib import Path
from harness import gpus
from tests.harness.fake_nvml import GIB, Device, FakeNvml

sys.modules["pynvml"] = FakeNvml([Device("GPU-aa", free=4 * GIB), Device("GPU-bb", free=5 * GIB)])
gpus.cores = lambda: 16
pytest_plugins = ["harness.pytest_gpus"]

def pytest_addoption(parser):
    parser.addoption("--backend", default="cuda")

def pytest_configure(config):
    from harness import pytest_gpus
    pytest_gpus.bind(config)
    name = config.workerinput["workerid"] if hasattr(config, "workerinput") else "other"
    Path(name).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
"""
_TESTS = """
import os, pytest

@pytest.mark.parametrize("number", range(8))
def test_one(number):
    if number == 3:
        os._exit(1)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with tests, one of which ends its process."""
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_all.py").write_text(_TESTS)
    return folder


def pytest_in(suite: Path, *options: str) -> str:
    environment = {**os.environ, "TMPDIR": str(suite), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name in ("CUDA_VISIBLE_DEVICES", "PYTEST_XDIST_AUTO_NUM_WORKERS", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, cwd=suite, env=environment, check=False, timeout=120
    )
    return done.stdout + done.stderr


def bound_in(suite: Path) -> dict[str, str]:
    """Which process of pytest is bound to which GPU."""
    names = ["other", *(path.name for path in suite.glob("gw*"))]
    return {name: (suite / name).read_text() for name in names}


def test_workers_share_the_gpus_and_one_that_is_replaced_leaves_its_place(suite: Path) -> None:
    printed = pytest_in(suite, "-n", "auto")
    assert "1 failed, 7 passed" in printed, printed
    assert "te-harness: 2 GPUs (NVIDIA H200), 9 of 280 GiB free" in printed
    bound = bound_in(suite)
    # Five fit: two and two, and another after the one that ended.
    assert bound.pop("other") == "none"
    assert len(bound) == 5
    first = Counter(bound[f"gw{number}"] for number in range(4))
    assert first == {"GPU-aa": 2, "GPU-bb": 2}
    (crashed,) = [name for name in bound if f"worker '{name}' crashed" in printed]
    assert bound["gw4"] == bound[crashed]


def test_the_only_process_is_bound_too(suite: Path) -> None:
    assert "7 passed" in pytest_in(suite, "--deselect", "test_all.py::test_one[3]")
    assert bound_in(suite) == {"other": "GPU-aa"}


def test_on_the_cpu_backend_nothing_is_bound(suite: Path) -> None:
    printed = pytest_in(suite, "--backend", "cpu", "--deselect", "test_all.py::test_one[3]")
    assert "GPU" not in printed
    assert bound_in(suite) == {"other": "none"}


# --- The number ---------------------------------------------------------------------------------------


def config(numprocesses: str = "auto", backend: str = "cuda") -> pytest.Config:
    options = {"numprocesses": numprocesses, "--backend": backend, "dist": "no"}
    fake: Any = SimpleNamespace(getoption=lambda name, default=None: options.get(name, default))
    return cast("pytest.Config", fake)


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([Device("GPU-a", free=6 * GIB)]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr(gpus, "cores", lambda: 16)


@pytest.mark.usefixtures("one_gpu")
def test_auto_follows_the_gpus_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pytest_gpus.pytest_xdist_auto_num_workers(config()) == 3
    assert pytest_gpus.pytest_xdist_auto_num_workers(config("logical")) is None
    assert pytest_gpus.pytest_xdist_auto_num_workers(config(backend="cpu")) is None
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "5")
    assert pytest_gpus.pytest_xdist_auto_num_workers(config()) is None


@pytest.mark.usefixtures("one_gpu")
def test_without_a_gpu_auto_means_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert pytest_gpus.pytest_xdist_auto_num_workers(config()) is None
