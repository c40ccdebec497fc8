"""Where Transformer Engine runs: chosen once per process, before Transformer Engine is imported.

>>> backend = activate("auto")
>>> import transformer_engine.pytorch as te
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from harness.backends.installed import has_compiled_extension, require_te, te_version, why_no_gpu
from harness.errors import CannotRunHere, HarnessError, HarnessFault, InvalidInput

if TYPE_CHECKING:
    from harness.backends.base import Backend

__all__ = ["CHOICES", "activate", "active", "choose", "te_version"]

CHOICES = ("auto", "cpu", "cuda")

_active: Backend | None = None


def choose(choice: str) -> tuple[str, str]:
    """Return the backend for ``choice``, "cpu" or "cuda", and the reason in words. Imports no TE.

    Raises InvalidInput for a word that is not one of CHOICES, and CannotRunHere where the choice does not
    run: no supported Transformer Engine; for "cuda" also no FP8 GPU or no compiled extension.
    """
    if choice not in CHOICES:
        raise InvalidInput(f"there is no backend {choice!r}: choose one of {', '.join(CHOICES)}")
    require_te()
    if choice == "cpu":
        return "cpu", "asked for"
    obstacle, remedy = _why_not_cuda()
    if obstacle is None:
        return "cuda", "asked for" if choice == "cuda" else "an FP8 GPU and Transformer Engine's extension"
    if choice == "cuda":
        raise CannotRunHere(f"the cuda backend cannot run here: {obstacle}; {remedy}")
    return "cpu", obstacle


def _why_not_cuda() -> tuple[str | None, str]:
    """Return what stands in the way of the cuda backend, None if nothing, and what to do about it."""
    obstacle = why_no_gpu()
    if obstacle is not None:
        return obstacle, "choose cpu, or run where torch sees a GPU of compute capability 8.9 or newer"
    if not has_compiled_extension():
        return (
            f"Transformer Engine {te_version()} has no compiled extension",
            "choose cpu, or pip install --no-build-isolation 'transformer-engine[pytorch,core-cu13]'",
        )
    return None, ""


def activate(choice: str) -> Backend:
    """Start the backend for ``choice`` and return it; from then on Transformer Engine can be imported.

    Later calls return the same backend; "auto" is content with the one there is. Raises HarnessError when
    another backend is active or something else has imported Transformer Engine, and what :func:`choose`
    raises.
    """
    global _active
    if _active is not None:
        if choice not in ("auto", _active.name):
            raise HarnessError(
                f"the {_active.name} backend is active in this process: "
                f"use it, or start a new process for {choice}"
            )
        return _active
    if "transformer_engine" in sys.modules:
        raise HarnessError(
            "Transformer Engine was imported before its backend was chosen: call activate() first"
        )
    name, reason = choose(choice)
    _active = importlib.import_module(f"harness.backends.{name}").start(reason)
    return active()


def active() -> Backend:
    """Return the active backend; raises HarnessFault before :func:`activate` was called."""
    if _active is None:
        raise HarnessFault("no backend is active: call harness.backends.activate() first")
    return _active
