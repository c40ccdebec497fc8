"""Says what is installed, which backend runs here and why, and what Transformer Engine lacks of the fix."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import msgspec

from harness import gpus
from harness.errors import CannotRunHere, HarnessError, InvalidInput
from harness.target import Target

_PACKAGES = ("torch", "hypothesis", "msgspec", "pytest", "click", "rich", "nvidia-ml-py")


class Diagnosis(msgspec.Struct, frozen=True):
    """What was found, row by row, the verdict in one line, and whether anything can run here."""

    rows: tuple[tuple[str, str], ...]
    verdict: str
    healthy: bool


def examine(backend: str) -> Diagnosis:
    """Look at this machine and make the backend active, if there is one that runs here.

    Raises InvalidInput for a backend that does not exist.
    """
    rows = [("python", f"{platform.python_version()} on {platform.platform()}")]
    rows += [(name, _version(name)) for name in _PACKAGES]
    # Before a backend is active, since that may hide the GPUs.
    seen = gpus.look()
    rows.append(("NVML", _told(seen)))
    try:
        rows += _installed()
        rows += _running(backend, seen)
    except InvalidInput:
        raise
    except HarnessError as error:
        return Diagnosis(tuple(rows), f"cannot run here: {error}", healthy=False)
    verdict = "runs here; " + dict(rows)["correction"]
    return Diagnosis(tuple(rows), verdict, healthy=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _told(seen: gpus.Seen) -> str:
    """Return which GPUs there are to share, and what NVML could not tell."""
    told = [gpus.described(seen.gpus)] if seen.gpus else []
    told += [seen.obstacle] if seen.obstacle else []
    return "; ".join(told) or "no GPU with FP8 that this process may use"


def _auto(backend: str, seen: gpus.Seen) -> str:
    """Return how many workers ``auto`` stands for, and why."""
    found = () if backend == "cpu" else seen.gpus
    most = gpus.cores()
    why = f"cores: {most}"
    if found:
        size = gpus.BYTES_PER_WORKER / 2**30
        why += f"; workers of {size:g} GiB that the GPUs have room for: {gpus.fitting(found)}"
    return f"auto means {gpus.workers_for(found, most)} ({why})"


def _installed() -> list[tuple[str, str]]:
    """Return what there is of TE, and which GPU torch sees."""
    import torch

    from harness import backends
    from harness.backends.installed import why_no_gpu

    gpu = why_no_gpu()
    if gpu is None:
        major, minor = torch.cuda.get_device_capability(0)
        gpu = f"{torch.cuda.get_device_name(0)}, compute capability {major}.{minor}"
    return [("GPU", gpu), ("transformer-engine", backends.te_version())]


def _running(backend: str, seen: gpus.Seen) -> list[tuple[str, str]]:
    try:
        session = Target(backend=backend, te_mode="installed").open()
    except HarnessError:
        raise
    except Exception as error:
        # Whatever keeps TE from being imported here is what the user came to learn.
        message = f"Transformer Engine does not start: {type(error).__name__}: {error}"
        raise CannotRunHere(message.split("\n", 1)[0]) from error
    lacking = ", ".join(sorted(session.lacking))
    needed = f"TE lacks these parts of the fix: {lacking}" if lacking else "TE has the fix"
    return [
        ("backend", f"{session.backend.name} ({session.backend.reason})"),
        ("device", session.backend.describe()["device"]),
        ("workers", _auto(session.backend.name, seen)),
        ("TE layout", session.probe.name),
        ("correction", needed),
    ]
