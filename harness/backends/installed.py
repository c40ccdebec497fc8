"""What this machine and this environment hold: Transformer Engine, its extension, an FP8 GPU.

Nothing here imports Transformer Engine; torch is imported by what asks for a GPU only, since a process is
bound to its GPU before.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sysconfig
from importlib.metadata import PackageNotFoundError, PathDistribution, version
from pathlib import Path

from harness.errors import CannotRunHere

FP8_CAPABILITY = (8, 9)
"""The lowest compute capability that has FP8: Ada's."""

OLDEST_TE = (2, 1)


@functools.cache
def te_directory() -> Path:
    """Return the directory from which ``import transformer_engine`` imports.

    Raises CannotRunHere when there is none.
    """
    spec = importlib.util.find_spec("transformer_engine")
    if spec is None or spec.origin is None:
        raise CannotRunHere("Transformer Engine is not installed: pip install 'transformer-engine>=2.1'")
    return Path(spec.origin).parent


@functools.cache
def te_version() -> str:
    """Return the release of Transformer Engine that this process imports, as "2.20.2".

    Read from the ``dist-info`` beside the package: under ``PYTHONPATH=<folder>`` another release may be
    installed too, and it is not the one that counts. An editable install has no ``dist-info`` beside the
    package; there the installed metadata is all there is.
    """
    beside = sorted(te_directory().parent.glob("transformer_engine-*.dist-info"))
    if beside:
        return PathDistribution(beside[0]).version
    try:
        return version("transformer_engine")
    except PackageNotFoundError:
        raise CannotRunHere(
            f"{te_directory()} has no version: install Transformer Engine with pip instead of copying it"
        ) from None


def te_version_tuple() -> tuple[int, ...]:
    """Return the release's leading numbers, to compare: (2, 20, 2)."""
    return tuple(int(number) for number in re.findall(r"\d+", te_version().split("+")[0])[:3])


def require_te() -> None:
    """Raise CannotRunHere unless a supported Transformer Engine is installed."""
    if te_version_tuple() < OLDEST_TE:
        oldest = ".".join(map(str, OLDEST_TE))
        raise CannotRunHere(
            f"Transformer Engine {te_version()} is too old: pip install 'transformer-engine>={oldest}'"
        )


def has_compiled_extension() -> bool:
    """Return whether the compiled ``transformer_engine_torch`` lies where Transformer Engine looks for it."""
    top = te_directory().parent
    places = (
        top,
        top / "transformer_engine",
        top / "transformer_engine" / "wheel_lib",
        Path(sysconfig.get_path("purelib")),
    )
    return any(any(place.glob("transformer_engine_torch*.so")) for place in places)


def why_no_gpu() -> str | None:
    """Return why no GPU of this machine runs FP8, in words; None when GPU 0 does."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU is visible to torch"
    capability = torch.cuda.get_device_capability(0)
    if capability < FP8_CAPABILITY:
        return (
            f"{torch.cuda.get_device_name(0)} has compute capability {capability[0]}.{capability[1]}, "
            f"FP8 needs {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]}"
        )
    return None
