"""Which GPUs a process may use, what CUDA_VISIBLE_DEVICES says of them, and how many workers they hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from harness import doctor, gpus
from harness.gpus import Gpu, look, visible, workers_for
from tests.harness.fake_nvml import GIB, Device, FakeNvml

PAIR = [Device("GPU-f333da29"), Device("GPU-f3440000")]
INSTANCES = (
    Device("MIG-aaaa", "NVIDIA H200 MIG 1g.18gb", memory=16 * GIB, free=15 * GIB, ids=(7, 0)),
    None,
    Device("MIG-bbbb", "NVIDIA H200 MIG 1g.18gb", memory=16 * GIB, free=15 * GIB, ids=(8, 0)),
)
CUT_UP = [Device("GPU-cut", mig=INSTANCES), Device("GPU-whole")]
MIXED = [Device("GPU-old", "Old", 24 * GIB, 20 * GIB, (8, 0)), Device("GPU-new", "New", 80 * GIB, 79 * GIB)]


class Host:
    """Makes this machine another one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, devices: list[Device], words: str | None = None, **environment: str) -> FakeNvml:
        nvml = FakeNvml(devices)
        self._patch.setattr(gpus, "has_compiled_extension", lambda: True)
        self._patch.setitem(sys.modules, "pynvml", nvml)
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            self._patch.delenv(name, raising=False)
        if words is not None:
            self._patch.setenv("CUDA_VISIBLE_DEVICES", words)
        for name, value in environment.items():
            self._patch.setenv(name, value)
        return nvml


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def words() -> list[str]:
    return [gpu.word for gpu in visible("auto")]


def gpu(free: int, memory: int = 140 * GIB) -> Gpu:
    return Gpu(word="0", uuid="GPU-0", product="P", memory=memory, free=free, capability=(9, 0))


# --- All there are -----------------------------------------------------------------------------------


def test_without_a_word_from_the_user_all_gpus_with_fp8_are_named_by_uuid(host: Host) -> None:
    nvml = host([*PAIR, Device("GPU-a100", capability=(8, 0)), Device("GPU-ada", capability=(8, 9))])
    assert words() == ["GPU-f333da29", "GPU-f3440000", "GPU-ada"]
    assert nvml.open == 0


def test_a_gpu_in_mig_mode_counts_as_its_instances(host: Host) -> None:
    host(CUT_UP)
    found = visible("auto")
    assert [part.word for part in found] == ["MIG-aaaa", "MIG-bbbb", "GPU-whole"]
    assert [part.is_mig for part in found] == [True, True, False]
    assert found[0].free == 15 * GIB
    assert found[0].capability == (9, 0)


def test_a_gpu_whose_mig_mode_is_off_is_whole(host: Host) -> None:
    host([Device("GPU-off", mig=())])
    assert words() == ["GPU-off"]


@pytest.mark.parametrize("given", [None, "0,1", "GPU-empty,GPU-other"])
def test_a_gpu_in_mig_mode_without_instances_is_none(host: Host, given: str | None) -> None:
    host([Device("GPU-empty", mig=(None,)), Device("GPU-other", "Other", mig=(None,))], given)
    assert words() == []


def test_the_cpu_backend_has_no_gpus(host: Host) -> None:
    host(PAIR)
    assert visible("cpu") == ()


def test_auto_has_no_gpus_where_it_comes_to_the_cpu(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host(PAIR)
    monkeypatch.setattr(gpus, "has_compiled_extension", lambda: False)
    assert visible("auto") == ()
    assert len(visible("cuda")) == 2


def test_a_gpu_without_memory_of_its_own_has_the_machines(host: Host) -> None:
    host([Device("GPU-shared", memory=None)])
    (found,) = visible("auto")
    assert found.memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < found.free <= found.memory


# --- Those that CUDA_VISIBLE_DEVICES names -----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "uuids"),
    [
        ("1,0", ["GPU-f3440000", "GPU-f333da29"]),
        (" 0 , 1", ["GPU-f333da29", "GPU-f3440000"]),
        ("0", ["GPU-f333da29"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["GPU-f333da29"]),
        ("0,99,1", ["GPU-f333da29"]),
        ("0,nonsense,1", ["GPU-f333da29"]),
        ("0,,1", ["GPU-f333da29"]),
        ("0,0", []),
        ("0,1,0", []),
        ("0,GPU-f333da29", []),
        ("GPU-f333da29", ["GPU-f333da29"]),
        ("GPU-f34,0", ["GPU-f3440000", "GPU-f333da29"]),
        ("GPU-f3", []),
        ("GPU-9", []),
        ("MIG-aaaa", []),
    ],
)
def test_the_users_words_are_read_as_cuda_reads_them(host: Host, given: str, uuids: list[str]) -> None:
    host(PAIR, given)
    assert [found.uuid for found in visible("auto")] == uuids
    assert words() == [word.strip() for word in given.split(",")][: len(uuids)]


@pytest.mark.parametrize(
    ("given", "uuids"),
    [
        ("MIG-bbbb,MIG-aaaa", ["MIG-bbbb", "MIG-aaaa"]),
        ("MIG-GPU-cut/8/0", ["MIG-bbbb"]),
        ("MIG-GPU-cut/8/1", []),
        ("MIG-aaaa,MIG-aaaa", []),
        ("MIG-aaaa,MIG-GPU-cut/7/0", []),
        ("0,1", ["MIG-aaaa", "GPU-whole"]),
        ("GPU-cut", ["MIG-aaaa"]),
    ],
)
def test_instances_have_two_names_and_a_cut_up_gpu_means_its_first(
    host: Host, given: str, uuids: list[str]
) -> None:
    host(CUT_UP, given)
    assert [found.uuid for found in visible("auto")] == uuids
    assert words() == given.split(",")[: len(uuids)]


def test_a_gpu_without_fp8_is_left_out_though_it_is_named(host: Host) -> None:
    host(MIXED, "GPU-old,GPU-new")
    assert words() == ["GPU-new"]


def test_among_several_models_an_index_may_mean_any_of_them(host: Host) -> None:
    host(MIXED, "0,1")
    first, second = visible("auto")
    assert (first.word, second.word) == ("0", "1")
    assert first.uuid != second.uuid
    assert (first.product, first.free) == ("New or Old", 20 * GIB)


def test_in_the_order_of_the_bus_an_index_means_what_it_means_to_nvml(host: Host) -> None:
    host(MIXED, "0,1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    (found,) = visible("auto")
    assert (found.word, found.uuid, found.free) == ("1", "GPU-new", 79 * GIB)


# --- What goes wrong ---------------------------------------------------------------------------------


def test_without_the_library_there_are_no_gpus_and_a_reason(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(PAIR)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    seen = look()
    assert seen.gpus == ()
    assert seen.obstacle is not None
    assert "pip install nvidia-ml-py" in seen.obstacle


def test_a_driver_that_does_not_answer_is_a_reason(host: Host) -> None:
    host(PAIR).broken = "Driver/library version mismatch"
    seen = look()
    assert seen.gpus == ()
    assert seen.obstacle == "NVML does not answer: Driver/library version mismatch"


def test_a_gpu_that_is_lost_is_told_of_and_keeps_its_index(host: Host) -> None:
    nvml = host([Device("GPU-dead", lost=True), *PAIR], "1,2,0")
    seen = look()
    assert [found.uuid for found in seen.gpus] == ["GPU-f333da29", "GPU-f3440000"]
    assert seen.obstacle == "GPU 0 does not answer: GPU is lost"
    assert nvml.open == 0


def test_the_real_library_has_all_that_the_fake_one_has() -> None:
    names = [name for name in vars(FakeNvml) if name.lower().startswith("nvml")]
    assert len(names) > 10
    for name in names:
        assert callable(getattr(pynvml, name)), name
    assert issubclass(pynvml.NVMLError_NotFound, pynvml.NVMLError)


# --- Workers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "cores", "workers"),
    [
        ((), 6, 6),
        ((138 * GIB,), 16, 16),
        ((138 * GIB,), 128, 69),
        ((138 * GIB, 138 * GIB), 128, 128),
        ((7 * GIB, 5 * GIB), 16, 5),
        ((GIB, GIB), 16, 1),
        ((0,), 16, 1),
    ],
)
def test_workers_follow_gpus_cores_and_free_memory(free: tuple[int, ...], cores: int, workers: int) -> None:
    assert workers_for([gpu(each) for each in free], cores) == workers


@pytest.mark.parametrize(
    ("quota", "most"), [("150000 100000", 2), ("1000 100000", 1), ("max 100000", 10**6), (None, 10**6)]
)
def test_a_containers_quota_bounds_the_cores(
    quota: str | None, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_QUOTA", tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(8), raising=False)
    assert gpus.cores() == min(8, most)


# --- What people are told ----------------------------------------------------------------------------


def test_gpus_are_described_in_a_line(host: Host) -> None:
    host(PAIR)
    assert gpus.described(visible("auto")) == "2 GPUs (NVIDIA H200), 276 of 280 GiB free"
    assert gpus.described([gpu(GIB)]) == "1 GPU (P), 1 of 140 GiB free"


def test_the_doctor_tells_of_the_gpus_and_how_many_workers_auto_means(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = host([Device("GPU-dead", lost=True), Device("GPU-small", free=5 * GIB)])
    monkeypatch.setattr(gpus, "cores", lambda: 16)
    seen: Any = look()
    assert doctor._told(seen) == (
        "1 GPU (NVIDIA H200), 5 of 140 GiB free; GPU 0 does not answer: GPU is lost"
    )
    assert doctor._auto("cuda", seen) == (
        "auto means 2 (cores: 16; workers of 2 GiB that the GPUs have room for: 2)"
    )
    assert doctor._auto("cpu", seen) == "auto means 16 (cores: 16)"
    nvml.devices = []
    assert doctor._told(look()) == "no GPU with FP8 that this process may use"
