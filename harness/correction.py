"""The fix, applied to a Transformer Engine release that lacks it.

Two breaks were repaired upstream in 2.20 (pull request 3394); a third rule came with the same release, and a
fourth with the one before. Each is a part of its own here, found missing by behaviour and not by version
number, and patched at run time around TE's own functions:

* ``stash in eval mode``: ``TransformerEngineBaseModule.prepare_forward`` (module/base.py) pushed only in
  training mode, while the recompute popped in any. Phase 1 now pushes whatever the module's mode.
* ``bypass without grad``: ``checkpoint`` (distributed.py) entered with autograd off pushed snapshots that
  no backward pops. It now calls a function with TE modules directly, under the forward context.
* ``skip ineligible``: a reentrant call none of whose inputs needs a gradient pushed too. It no longer does.
* ``autocast inside``: until 2.18 a region remembered at entry whether FP8 was on (distributed.py,
  ``activation_recompute_forward``), and an autocast opened inside it pushed nothing. Now it is asked anew.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeAlias, get_args

import torch
import transformer_engine.common.recipe as te_recipe
import transformer_engine.pytorch as te
import transformer_engine.pytorch.distributed as te_distributed
from torch.utils.checkpoint import noop_context_fn
from transformer_engine.pytorch.module.base import FP8GlobalStateManager, TransformerEngineBaseModule

from harness.api import autocast
from harness.probe import Probe

Part: TypeAlias = Literal["stash in eval mode", "bypass without grad", "skip ineligible", "autocast inside"]
PARTS: tuple[Part, ...] = get_args(Part)

_CHECKPOINT_OPTIONS = (
    "use_reentrant", "distribute_saved_activations", "tp_group", "get_rng_state_tracker", "context_fn",
    "determinism_check", "debug",
)  # fmt: skip


def missing_parts(probe: Probe, device: torch.device) -> frozenset[Part]:
    """Return the parts of the fix that the imported TE lacks, by running one small module per part."""
    found = set()
    for part, (call, due) in _CHECKS.items():
        probe.reset()
        module = te.Linear(16, 16, device=device)
        with warnings.catch_warnings():
            # Older releases call what today's torch deprecates.
            warnings.simplefilter("ignore")
            call(module, torch.zeros(16, 16, device=device))
        if len(probe.queue(module) or ()) != due:
            found.add(part)
    probe.reset()
    return frozenset(found)


def _fp8() -> Any:
    return autocast(True, te_recipe.DelayedScaling())


def _call_in_eval_mode(module: torch.nn.Module, x: torch.Tensor) -> None:
    with _fp8():
        te.checkpoint(module.eval(), x.requires_grad_(), use_reentrant=True)


def _call_without_grad(module: torch.nn.Module, x: torch.Tensor) -> None:
    with _fp8(), torch.no_grad():
        te.checkpoint(module, x, use_reentrant=False)


def _call_ineligible(module: torch.nn.Module, x: torch.Tensor) -> None:
    with _fp8():
        te.checkpoint(module, x, use_reentrant=True)


def _call_with_autocast_inside(module: torch.nn.Module, x: torch.Tensor) -> None:
    def function(y: torch.Tensor) -> torch.Tensor:
        with _fp8():
            out: torch.Tensor = module(y)
        return out

    te.checkpoint(function, x.requires_grad_(), use_reentrant=False)


_CHECKS: dict[Part, tuple[Callable[[torch.nn.Module, torch.Tensor], None], int]] = {
    "stash in eval mode": (_call_in_eval_mode, 1),
    "bypass without grad": (_call_without_grad, 0),
    "skip ineligible": (_call_ineligible, 0),
    "autocast inside": (_call_with_autocast_inside, 1),
}
"""What shows that a part is there: a call, and how many snapshots it must push."""


class Correction:
    """Some parts of the fix, which can be patched into the imported TE and taken out again."""

    def __init__(self, parts: frozenset[Part]) -> None:
        self.parts = parts
        self._undo: list[tuple[Any, str, Any]] = []

    def apply(self) -> None:
        """Patch TE, in each of its modules that holds ``checkpoint`` under a name of its own."""
        if "stash in eval mode" in self.parts:
            original = TransformerEngineBaseModule.prepare_forward
            self._set(TransformerEngineBaseModule, "prepare_forward", _stashing(original))
        if "autocast inside" in self.parts:
            self._ask_anew_whether_fp8_is_on()
        direct = self.parts & {"bypass without grad", "skip ineligible"}
        if direct:
            self._set_everywhere("checkpoint", _bypassing(te_distributed.checkpoint, direct))

    def remove(self) -> None:
        """Give TE its own functions back."""
        while self._undo:
            owner, attribute, value = self._undo.pop()
            setattr(owner, attribute, value)

    def _ask_anew_whether_fp8_is_on(self) -> None:
        region = te_distributed.activation_recompute_forward
        enter = region.__enter__

        def entered(this: Any) -> Any:
            result = enter(this)
            te_distributed._FP8_ACTIVATION_RECOMPUTE_ENABLED = this.activation_recompute
            return result

        def enabled() -> bool:
            inside: bool = te_distributed._FP8_ACTIVATION_RECOMPUTE_ENABLED
            return inside and FP8GlobalStateManager.is_fp8_enabled()

        self._set(region, "__enter__", entered)
        self._set_everywhere("is_fp8_activation_recompute_enabled", enabled)

    def _set_everywhere(self, attribute: str, value: Any) -> None:
        """Replace a function of ``distributed.py`` in each of TE's modules that imported it."""
        original = getattr(te_distributed, attribute)
        for name, module in list(sys.modules.items()):
            if name.startswith("transformer_engine") and vars(module).get(attribute) is original:
                self._set(module, attribute, value)

    def _set(self, owner: Any, attribute: str, value: Any) -> None:
        self._undo.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, value)


def _stashing(prepare_forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(prepare_forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = prepare_forward(self, *args, **kwargs)
        # A context manager until 2.11, of which nothing has run yet.
        if isinstance(result, AbstractContextManager):
            return _stashing_once_entered(result, self)
        _stash_in_eval_mode(self)
        return result

    return wrapper


@contextmanager
def _stashing_once_entered(context: AbstractContextManager[Any], module: Any) -> Iterator[Any]:
    with context as result:
        _stash_in_eval_mode(module)
        yield result


def _stash_in_eval_mode(module: Any) -> None:
    in_phase_1 = (
        te_distributed.is_fp8_activation_recompute_enabled()
        and not te_distributed.in_fp8_activation_recompute_phase()
    )
    # In training mode TE has pushed by itself; the call is TE's own, and does nothing but for
    # delayed scaling.
    if module.fp8 and in_phase_1 and not module.training and module.fp8_meta["recipe"].delayed():
        FP8GlobalStateManager.copy_forward_fp8_meta_tensors_for_recompute(module.fp8_meta)


def _bypassing(checkpoint: Callable[..., Any], parts: frozenset[str]) -> Callable[..., Any]:
    @functools.wraps(checkpoint)
    def wrapper(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not te_distributed.has_te_modules(function):
            return checkpoint(function, *args, **kwargs)
        off = not torch.is_grad_enabled()
        reentrant = kwargs.get("use_reentrant", True)
        needed = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        ineligible = not off and reentrant and not needed
        if not (off and "bypass without grad" in parts) and not (ineligible and "skip ineligible" in parts):
            return checkpoint(function, *args, **kwargs)
        te_distributed._USE_REENTRANT_ACTIVATION_RECOMPUTE = reentrant
        options = {name: kwargs.pop(name) for name in _CHECKPOINT_OPTIONS if name in kwargs}
        forward, _ = options.get("context_fn", noop_context_fn)()
        # An autograd function whose inputs need no gradient runs its forward with gradients off.
        with torch.set_grad_enabled(False), forward:
            return function(*args, **kwargs)

    return wrapper
