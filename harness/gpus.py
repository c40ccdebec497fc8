"""The GPUs of this machine that a process may use, as NVML and ``CUDA_VISIBLE_DEVICES`` tell.

CUDA itself is not asked: it reads ``CUDA_VISIBLE_DEVICES`` once per process, and each process is to set it to
one GPU first. Neither torch nor a driver is needed; without them there are no GPUs.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.backends.installed import FP8_CAPABILITY, has_compiled_extension
from harness.errors import CannotRunHere

BYTES_PER_WORKER = 2 * 2**30
"""Of a GPU's memory. Measured on an H200 with torch 2.11 and Transformer Engine 2.20.2: 16 workers on the
tests of the frontier, which are the largest, held 1.33 GiB each at most, with their CUDA contexts."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What a container may use of the processors, under cgroup v2: microseconds of each so many, or "max"."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or an instance of one in MIG mode: of those, a process can use but one."""

    word: str
    """What names it in ``CUDA_VISIBLE_DEVICES``."""
    uuid: str
    """Tells it from all others, whatever word names it."""
    product: str
    memory: int
    """Bytes in all."""
    free: int
    """Bytes free when it was looked at."""
    capability: tuple[int, int]
    is_mig: bool = False

    @property
    def room(self) -> int:
        """How many workers fit into its memory, were it empty; one at least."""
        return max(1, self.memory // BYTES_PER_WORKER)


class Seen(msgspec.Struct, frozen=True):
    """The GPUs that this process may use, and what NVML could not tell, in words."""

    gpus: tuple[Gpu, ...] = ()
    obstacle: str | None = None


class _Board(msgspec.Struct, frozen=True):
    """A whole GPU: in MIG mode its instances, else itself; nothing where it cannot be used."""

    uuid: str = ""
    product: str = ""
    parts: tuple[Gpu, ...] = ()
    names: dict[str, int] = {}
    """Of the instances: where each is in ``parts``, by its UUID and by its name in drivers before 470."""


def visible(backend: str) -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use on a backend, or on the one that ``auto`` comes to.

    Without Transformer Engine's compiled extension that is the CPU, whatever GPUs there are.
    """
    if backend == "cpu":
        return ()
    # Where Transformer Engine is not installed at all, whoever needs it says so.
    with contextlib.suppress(CannotRunHere):
        if backend == "cuda" or has_compiled_extension():
            return look().gpus
    return ()


def look() -> Seen:
    """Look for GPUs that this process may use and that run FP8, in the user's order, else in the bus's.

    Where NVML does not answer, there are none, and a reason; nothing is raised.
    """
    try:
        with warnings.catch_warnings():
            # An old package of the same name says here that it is deprecated.
            warnings.simplefilter("ignore")
            import pynvml
    except ImportError:
        return Seen(obstacle="there is no nvidia-ml-py: pip install nvidia-ml-py")
    try:
        with _running(pynvml):
            boards, lost = _boards(pynvml)
    except pynvml.NVMLError as error:
        return Seen(obstacle=f"NVML does not answer: {error}")
    words = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = [part for board in boards for part in board.parts] if words is None else _named(words, boards)
    return Seen(tuple(gpu for gpu in chosen if gpu.capability >= FP8_CAPABILITY), "; ".join(lost) or None)


# --- How many workers --------------------------------------------------------------------------------


def workers_for(gpus: Sequence[Gpu], most: int) -> int:
    """Return how many workers ``auto`` stands for: so many as there are cores, ``most``, and memory for.

    The work is bound by kernel launches, which cost a core: on an H200 with 16, 16 workers did 12 times the
    work of one. It is one worker at least, and without a GPU, one per core.
    """
    return max(1, min(most, fitting(gpus))) if gpus else most


def fitting(gpus: Sequence[Gpu]) -> int:
    """Return how many workers fit into the memory that is free."""
    return sum(gpu.free // BYTES_PER_WORKER for gpu in gpus)


def described(gpus: Sequence[Gpu]) -> str:
    """Return in a line what these GPUs are: "2 GPUs (NVIDIA H200), 278 of 281 GiB free"."""
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    products = ", ".join(sorted({gpu.product for gpu in gpus}))
    free, memory = (sum(sizes) / 2**30 for sizes in zip(*((g.free, g.memory) for g in gpus), strict=True))
    return f"{len(gpus)} {noun} ({products}), {free:.0f} of {memory:.0f} GiB free"


def cores() -> int:
    """Return how many cores this process may use, by its affinity and its container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        # No container, no limit ("max"), or another system.
        return allowed


# --- CUDA_VISIBLE_DEVICES ----------------------------------------------------------------------------


def _named(words: str, boards: Sequence[_Board]) -> list[Gpu]:
    """Return the GPUs that a value of ``CUDA_VISIBLE_DEVICES`` names, as CUDA reads it.

    CUDA stops at the first word that names no device, so that "-1" and "" hide all. It sees none at all where
    one comes twice (measured on an H200 with driver 580). The instances of a GPU in MIG mode, of which it
    would take the first one only, all count here: each process is given one of them.
    """
    found: list[Gpu] = []
    for word in words.split(","):
        gpu = _find(word.strip(), boards)
        if gpu is None:
            break
        found.append(gpu)
    return found if len({gpu.uuid for gpu in found}) == len(found) else []


def _find(word: str, boards: Sequence[_Board]) -> Gpu | None:
    if word.isdecimal():
        return _at(int(word), boards)
    if word.startswith("GPU-"):
        # A UUID may be cut short while one alone begins so; in MIG mode CUDA takes the first instance.
        found = [board.parts for board in boards if board.uuid.startswith(word)]
    else:
        found = [board.parts[board.names[word] :] for board in boards if word in board.names]
    return msgspec.structs.replace(found[0][0], word=word) if len(found) == 1 and found[0] else None


def _at(index: int, boards: Sequence[_Board]) -> Gpu | None:
    """Return the GPU with this index in CUDA's order, in which the word will be read again.

    NVML numbers GPUs as they lie on the bus; CUDA, unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``, puts the
    fastest first, by a rule that is not published. GPUs of one model lie the same in both. Of several, all
    that is known of the one meant is what goes for each: the least memory, and that torch must see whether
    it has FP8. Its UUID here is the index, so that processes with the same words still share the GPUs evenly.
    """
    all_parts = [part for board in boards for part in board.parts[:1]]
    if index >= len(boards) or not all_parts:
        return None
    products = sorted({board.product for board in boards if board.product})
    if len(products) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return Gpu(
            word=str(index),
            uuid=f"index-{index}",
            product=" or ".join(products),
            memory=min(part.memory for part in all_parts),
            free=min(part.free for part in all_parts),
            capability=max(part.capability for part in all_parts),
        )
    parts = boards[index].parts
    return msgspec.structs.replace(parts[0], word=str(index)) if parts else None


# --- NVML --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _running(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _boards(nvml: Any) -> tuple[list[_Board], list[str]]:
    """Return all GPUs in the order of the bus, and what is wrong with those that do not answer."""
    boards: list[_Board] = []
    lost: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            boards.append(_board(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        except nvml.NVMLError as error:
            # It keeps its index.
            boards.append(_Board())
            lost.append(f"GPU {index} does not answer: {error}")
    return boards, lost


def _board(nvml: Any, handle: Any) -> _Board:
    uuid, product = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
    capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    if not _in_mig_mode(nvml, handle):
        return _Board(uuid, product, (_gpu(nvml, handle, capability),))
    parts: list[Gpu] = []
    names: dict[str, int] = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        part = _gpu(nvml, instance, capability, is_mig=True)
        ids = nvml.nvmlDeviceGetGpuInstanceId(instance), nvml.nvmlDeviceGetComputeInstanceId(instance)
        names[part.uuid] = names[f"MIG-{uuid}/{ids[0]}/{ids[1]}"] = len(parts)
        parts.append(part)
    return _Board(uuid, product, tuple(parts), names)


def _in_mig_mode(nvml: Any, handle: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        return False
    return bool(current)


def _gpu(nvml: Any, handle: Any, capability: tuple[int, int], *, is_mig: bool = False) -> Gpu:
    uuid = nvml.nvmlDeviceGetUUID(handle)
    try:
        held = nvml.nvmlDeviceGetMemoryInfo(handle)
        memory, free = held.total, held.free
    except nvml.NVMLError_NotSupported:
        # It has none of its own, but shares the machine's.
        page = os.sysconf("SC_PAGE_SIZE")
        memory, free = (page * os.sysconf(name) for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    return Gpu(
        word=uuid,
        uuid=uuid,
        product=nvml.nvmlDeviceGetName(handle),
        memory=memory,
        free=free,
        capability=capability,
        is_mig=is_mig,
    )
