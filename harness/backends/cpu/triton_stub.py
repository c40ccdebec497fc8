"""A stand-in for triton, which torch's CPU wheel does not bring.

Transformer Engine decorates its triton kernels when it is imported and launches none of those here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from harness.backends.cpu.unwritten import Unwritten

_MODULES = ("triton", "triton.language", "triton.language.core", "triton.language.standard", "triton.runtime")


class _Decorated:
    """A decorated kernel: importable, and an error when launched."""

    def __init__(self, function: Any) -> None:
        self.__name__: str = function.__name__
        self._launch = Unwritten(f"{self.__name__} (triton)")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._launch(*args, **kwargs)

    def __getitem__(self, _grid: Any) -> Any:
        return self._launch


def _decorator(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return _Decorated(args[0])
    return _Decorated


class _Module(ModuleType):
    """Has every attribute: a decorator, or an object that stands for whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("jit", "autotune", "heuristics"):
            return _decorator
        return _Anything


class _Anything:
    """A type, a config or a constant of triton that is only named when TE is imported."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass


def stub_triton() -> None:
    """Register the stand-in where triton is not installed."""
    # Both probe for triton when first imported, and must find that there is none.
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.utils")
    if importlib.util.find_spec("triton") is not None:
        return
    for name in _MODULES:
        module = _Module(name)
        module.__path__ = []
        module.__dict__["__version__"] = "3.4.0"
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
