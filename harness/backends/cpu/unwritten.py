"""The error of an emulated extension that was asked for something it does not do."""

from __future__ import annotations

from typing import Any, NoReturn

from harness.errors import HarnessFault


class UnwrittenKernel(HarnessFault):
    """A kernel, or an argument of one, that the emulation does not have.

    Raised when the thing is used, not when it is imported: Transformer Engine imports many kernels
    that a given model never runs.
    """


class Unwritten:
    """Stands for a kernel that is importable and not written; calling it names it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise :class:`UnwrittenKernel`."""
        raise UnwrittenKernel(
            f"the kernel {self.__name__} is not emulated on the CPU; write it in harness/backends/cpu "
            "or run on a GPU"
        )


def refuse_unless(honoured: bool, kernel: str, what: str) -> None:
    """Raise :class:`UnwrittenKernel` when ``kernel`` was given ``what``, which its emulation ignores."""
    if not honoured:
        raise UnwrittenKernel(
            f"{kernel} is emulated without {what}; write it in harness/backends/cpu or run on a GPU"
        )
