"""Says what is installed, which backend runs here and why, and what Transformer Engine lacks of the fix."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import msgspec

from harness.errors import CannotRunHere, HarnessError, InvalidInput
from harness.target import Target

_PACKAGES = ("torch", "hypothesis", "msgspec", "pytest", "click", "rich")


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
    try:
        rows += _installed()
        rows += _running(backend)
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


def _installed() -> list[tuple[str, str]]:
    """Return what there is of TE and GPUs. Before a backend is active, since that may hide the GPUs."""
    import torch

    from harness import backends
    from harness.backends.installed import why_no_gpu

    gpu = why_no_gpu()
    if gpu is None:
        major, minor = torch.cuda.get_device_capability(0)
        gpu = f"{torch.cuda.get_device_name(0)}, compute capability {major}.{minor}"
    return [("GPU", gpu), ("transformer-engine", backends.te_version())]


def _running(backend: str) -> list[tuple[str, str]]:
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
        ("TE layout", session.probe.name),
        ("correction", needed),
    ]
