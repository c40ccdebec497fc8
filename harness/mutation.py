"""Transformer Engine, or our correction of it, with one small fault planted.

Planting compiles the rewritten function alone and gives its code to the function object that TE already
has: every module that imported it, every wrapper around it and every bound method then runs the mutant, and
taking it out again leaves nothing behind.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from harness.errors import HarnessFault
from harness.mutants import CORRECTION, Mutant, source
from harness.operators import Function


class Planted:
    """A mutant in the imported TE, or in the imported correction, from ``plant`` until ``remove``."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self._function = _function_object(mutant)
        self._kept = self._function.__code__, self._function.__defaults__

    def plant(self) -> None:
        """Give the function the mutant's code."""
        self._function.__code__ = _compiled(self.mutant, self._function.__code__)
        self._function.__defaults__ = _defaults(self.mutant, self._kept[1])
        _forget_results(self.mutant)

    def remove(self) -> None:
        """Give the function its own code back."""
        self._function.__code__, self._function.__defaults__ = self._kept
        _forget_results(self.mutant)


def _module_name(file: str) -> str:
    package = "" if file == CORRECTION else "transformer_engine."
    return package + file.removesuffix(".py").replace("/", ".")


def _attribute(mutant: Mutant) -> Any:
    """Return what the file's module, or the class in it, holds under the function's name."""
    holder: Any = importlib.import_module(_module_name(mutant.file))
    for name in mutant.function.split("."):
        holder = inspect.getattr_static(holder, name)
    return holder


def _function_object(mutant: Mutant) -> FunctionType:
    """Return the function itself, without the descriptors and wrappers around it."""
    found = _attribute(mutant)
    while not isinstance(found, FunctionType) or hasattr(found, "__wrapped__"):
        inner = getattr(found, "__wrapped__", None) or getattr(found, "fget", None)
        found = inner or getattr(found, "__func__", None)
        if found is None:
            raise HarnessFault(f"{mutant.id}: there is no plain function to mutate")
    if found.__code__.co_name != mutant.original.name:
        raise HarnessFault(f"{mutant.id}: found {found.__code__.co_name} in its place")
    return found


def _compiled(mutant: Mutant, code: CodeType) -> CodeType:
    """Compile the mutated function where it belongs: in its class, with the names that it closes over."""
    block: ast.stmt = _bare(mutant.mutated, code.co_freevars)
    if mutant.owner:
        block = ast.ClassDef(mutant.owner, [], [], [block], [])
    module = ast.fix_missing_locations(ast.Module([_FUTURE, block], []))
    compiled = compile(module, str(source(mutant.file)), "exec", dont_inherit=True)
    for name in mutant.function.split("."):
        compiled = next(c for c in compiled.co_consts if isinstance(c, CodeType) and c.co_name == name)
    if compiled.co_freevars != code.co_freevars:
        raise HarnessFault(f"{mutant.id}: closes over {compiled.co_freevars}, not {code.co_freevars}")
    return compiled


_FUTURE = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
"""Annotations are not part of a function's code: none needs to be evaluated."""


def _bare(function: Function, closed_over: tuple[str, ...]) -> Function:
    """Return the function without decorators, and with a mention of each name that it must close over.

    Code can only be exchanged for code that closes over the same names, whether it still uses them or not.
    """
    bare = copy.copy(function)
    bare.decorator_list = []
    if closed_over:
        mentions: list[ast.stmt] = [ast.Expr(ast.Name(name, ast.Load())) for name in closed_over]
        bare.body = [ast.If(ast.Constant(value=False), mentions, []), *function.body]
    return bare


def _defaults(mutant: Mutant, kept: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the function's defaults, of which a mutant may have flipped one."""
    if kept is None:
        return None
    before, after = mutant.original.args.defaults, mutant.mutated.args.defaults
    return tuple(
        value if ast.dump(old) == ast.dump(new) else ast.literal_eval(new)
        for value, old, new in zip(kept, before, after, strict=True)
    )


def _forget_results(mutant: Mutant) -> None:
    """Empty the cache of a function that remembers what it returned."""
    clear: Callable[[], None] | None = getattr(_attribute(mutant), "cache_clear", None)
    if clear is not None:
        clear()
