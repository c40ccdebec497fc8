"""The choice of a backend, and the reasons given for it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from harness.backends import choose, installed
from harness.errors import CannotRunHere, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that makes torch see the GPU of the given capability, or none."""

    def pretend(capability: tuple[int, int] | None, *, extension: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device=None: "Some GPU")
        monkeypatch.setattr("harness.backends.has_compiled_extension", lambda: extension)

    return pretend


@pytest.fixture
def without_te(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    installed.te_directory.cache_clear()
    installed.te_version.cache_clear()
    yield
    installed.te_directory.cache_clear()
    installed.te_version.cache_clear()


def test_auto_takes_a_gpu_that_runs_fp8(machine: Machine) -> None:
    machine((9, 0))
    assert choose("auto") == ("cuda", "an FP8 GPU and Transformer Engine's extension")


def test_auto_takes_the_oldest_gpu_that_runs_fp8(machine: Machine) -> None:
    machine((8, 9))
    assert choose("auto")[0] == "cuda"


def test_auto_falls_back_to_the_cpu_without_a_gpu(machine: Machine) -> None:
    machine(None)
    assert choose("auto") == ("cpu", "no GPU is visible to torch")


def test_auto_falls_back_to_the_cpu_from_a_gpu_without_fp8(machine: Machine) -> None:
    machine((8, 0))
    assert choose("auto") == ("cpu", "Some GPU has compute capability 8.0, FP8 needs 8.9")


def test_auto_falls_back_to_the_cpu_without_a_compiled_extension(machine: Machine) -> None:
    machine((9, 0), extension=False)
    name, reason = choose("auto")
    assert name == "cpu"
    assert reason.endswith("has no compiled extension")


def test_cpu_is_taken_when_asked_for_even_where_a_gpu_is(machine: Machine) -> None:
    machine((9, 0))
    assert choose("cpu") == ("cpu", "asked for")


@pytest.mark.parametrize(
    ("capability", "extension"), [(None, True), ((8, 6), True), ((9, 0), False)], ids=str
)
def test_cuda_says_in_one_line_why_it_cannot_run(
    machine: Machine, capability: tuple[int, int] | None, extension: bool
) -> None:
    machine(capability, extension=extension)
    with pytest.raises(CannotRunHere, match=r"cuda backend cannot run here: .*; choose cpu, or") as caught:
        choose("cuda")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("choice", ["auto", "cpu", "cuda"])
def test_a_te_too_old_cannot_run(monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    monkeypatch.setattr(installed, "te_version", lambda: "2.0.1")
    with pytest.raises(CannotRunHere, match=r"Transformer Engine 2\.0\.1 is too old: pip install"):
        choose(choice)


@pytest.mark.usefixtures("without_te")
def test_no_te_cannot_run() -> None:
    with pytest.raises(CannotRunHere, match="Transformer Engine is not installed: pip install"):
        choose("cpu")


def test_another_word_is_invalid() -> None:
    with pytest.raises(InvalidInput, match="there is no backend 'gpu': choose one of auto, cpu, cuda"):
        choose("gpu")


def test_choosing_imports_no_te() -> None:
    program = (
        "import sys, harness.backends as b; b.choose('auto'); assert 'transformer_engine' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.20.2", (2, 20, 2)), ("2.9.0", (2, 9, 0)), ("2.21.0.dev0+abc123", (2, 21, 0))],
)
def test_versions_are_compared_as_numbers(
    monkeypatch: pytest.MonkeyPatch, version: str, numbers: tuple[int, ...]
) -> None:
    monkeypatch.setattr(installed, "te_version", lambda: version)
    assert installed.te_version_tuple() == numbers
