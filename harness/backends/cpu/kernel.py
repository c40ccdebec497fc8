"""What every emulated kernel shares: it is invisible to autograd, and it writes as a kernel writes."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Make ``function`` record nothing for autograd and cast nothing, as a compiled kernel does neither.

    torch's autocast would have the operations of an emulated kernel run in bfloat16.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with ExitStack() as stack:
            if torch.is_grad_enabled():
                stack.enter_context(torch.no_grad())
            if torch.is_autocast_enabled("cpu"):
                stack.enter_context(torch.autocast("cpu", enabled=False))
            return function(*args, **kwargs)

    return run


def overwrite(destination: torch.Tensor, source: torch.Tensor) -> None:
    """Copy ``source`` into ``destination`` (same number of elements) behind autograd's back.

    A CUDA kernel writes through a raw pointer, so autograd's version counter does not see it and a
    tensor saved for backward may change unnoticed. ``Tensor.data`` has a counter of its own: with it
    the emulation raises no "modified by an inplace operation" error that the real kernel would not.
    """
    if source.shape != destination.shape:
        source = source.reshape(destination.shape)
    destination.data.copy_(source)
