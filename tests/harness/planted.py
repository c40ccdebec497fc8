"""Checkpointers with a fault, for commands to be pointed at with ``--checkpointer``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from harness.errors import HarnessFault


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


def leaves(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """End the process as if all were well."""
    os._exit(0)


def breaks(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Any:
    """Fail as the harness itself may fail."""
    raise HarnessFault("planted")
