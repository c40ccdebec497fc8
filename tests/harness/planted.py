"""Checkpointers with a fault, for commands to be pointed at with ``--checkpointer``."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformer_engine.pytorch as te

from harness import backends
from harness.errors import DeviceLost, HarnessFault, ReleaseLacks


def no_recompute(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Never recompute: just call the function."""
    for option in ("use_reentrant", "context_fn"):
        kwargs.pop(option, None)
    return function(*args, **kwargs)


def refuses(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """Raise at once: the failure that is shrunk fastest."""
    raise ValueError("planted")


def dies(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """Take the whole process down, as a segmentation fault would."""
    os._exit(17)


def segfaults(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """Read where nothing is, as a broken extension would."""
    return ctypes.string_at(0)


def aborts_in_reentrant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Abort in a reentrant region, as a failed assertion of an extension would."""
    if kwargs.get("use_reentrant", True):
        os.abort()
    return te.checkpoint(function, *args, **kwargs)


def release_lacks_reentrant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Refuse a reentrant region, as a release does that has none."""
    if kwargs.get("use_reentrant", True):
        raise ReleaseLacks("0.0", "reentrant regions")
    return te.checkpoint(function, *args, **kwargs)


def dies_unless_reentrant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Take the whole process down in a region that is not reentrant."""
    if not kwargs.get("use_reentrant", True):
        os._exit(17)
    return te.checkpoint(function, *args, **kwargs)


def hangs(_function: object, *_args: Any, **_kwargs: Any) -> Any:
    """Come to no end."""
    time.sleep(3600)


_CALLS = itertools.count(1)


def _once(fault: Callable[[], Any]) -> Callable[..., Any]:
    """Return a checkpointer that fails in the eighth call, and never again: a file in its folder tells."""

    def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        happened = Path("happened")
        if next(_CALLS) == 8 and not happened.exists():
            happened.touch()
            fault()
        return te.checkpoint(function, *args, **kwargs)

    return checkpoint


is_killed_once = _once(lambda: os.kill(os.getpid(), signal.SIGKILL))
hangs_once = _once(lambda: hangs(None))


def loses_the_server(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """Kill the process that the environment names, and raise."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(os.environ["TE_HARNESS_TEST_SERVER"]), signal.SIGKILL)
    raise ValueError("planted")


def leaves(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """End the process as if all were well."""
    os._exit(0)


def breaks(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """Fail as the harness itself may fail."""
    raise HarnessFault("planted")


_BROKEN: list[bool] = []


def breaks_once(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same in the first call only."""
    if not _BROKEN:
        _BROKEN.append(True)
        raise HarnessFault("planted")
    return te.checkpoint(function, *args, **kwargs)


def loses_the_device(_function: object, *_args: Any, **_kwargs: Any) -> Any:
    """Leave the device as a failed assertion of a kernel leaves a GPU: it raises, and raises ever after."""

    def check_device() -> None:
        raise DeviceLost("CUDA error: planted")

    backends.active().check_device = check_device  # type: ignore[method-assign]
    raise RuntimeError("CUDA error: planted")


def asserts_on_the_device(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Have a kernel of a real GPU fail its assertion: index 7 of one element."""
    out = te.checkpoint(function, *args, **kwargs)
    torch.zeros(1, device="cuda")[torch.full((1,), 7, device="cuda")]
    return out


def asserts_on_the_device_in_reentrant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same in a reentrant region only."""
    checkpoint = asserts_on_the_device if kwargs.get("use_reentrant", True) else te.checkpoint
    return checkpoint(function, *args, **kwargs)


loses_the_device_once = _once(lambda: loses_the_device(None))
