"""The only file that reads Transformer Engine's private state.

One class per layout of that state; ``detect`` finds the one that fits by looking, not by version:

* ``Layout2_1`` (2.1 to 2.8): class attributes of ``FP8GlobalStateManager``,
* ``Layout2_9`` (2.9 to 2.14): the same, the depth of autocasts by another name,
* ``Layout2_15`` (from 2.15 on): attributes of ``FP8GlobalStateManager.quantization_state``.

The region and phase flags of ``distributed.py`` were renamed in 2.19; both names are known here.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
import transformer_engine.pytorch as te
import transformer_engine.pytorch.distributed as te_distributed
from transformer_engine.pytorch.module.base import FP8GlobalStateManager, TransformerEngineBaseModule

from harness.errors import CannotRunHere

_OPS = "_fp8_metas"
_POSITION = "global_fp8_buffer_pos_fwd_recompute"
_REGION_FLAGS = ("_IN_ACTIVATION_RECOMPUTE_REGION", "_FP8_ACTIVATION_RECOMPUTE_ENABLED")
_PHASE_FLAGS = ("_ACTIVATION_RECOMPUTE_PHASE", "_FP8_ACTIVATION_RECOMPUTE_PHASE")
_ATTENTION = sys.modules[te.DotProductAttention.__module__]
"""``attention.py`` until 2.2, then ``attention/dot_product_attention/dot_product_attention.py``."""
_REENTRANT_FLAG = "_USE_REENTRANT_ACTIVATION_RECOMPUTE"


class Probe(ABC):
    """Reads TE's recompute state; resets what TE keeps per process between cases."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._region_flag = _present(_REGION_FLAGS)
        self._phase_flag = _present(_PHASE_FLAGS)

    @abstractmethod
    def _queues(self) -> list[deque[Any]]:
        """Return the process's recompute queues."""

    @abstractmethod
    def _autocast_depth(self) -> int:
        """Return how many autocasts are open."""

    def queue(self, module: torch.nn.Module) -> deque[Any] | None:
        """Return a module's recompute queue of snapshots, None where nothing was ever pushed."""
        position = module.fp8_meta.get(_POSITION)  # type: ignore[union-attr, operator]
        queues = self._queues()
        return queues[position] if position is not None and position < len(queues) else None

    def snapshots(self) -> int:
        """Return how many snapshots all queues of the process hold, whether or not a module knows its own."""
        return sum(len(queue) for queue in self._queues())

    def first_flags(self) -> list[bool]:
        """Return the list of first-module flags, one per pending phase 1."""
        flags: list[bool] = te_distributed.activation_recompute_forward._is_first_fp8_module
        return flags

    def flags(self) -> tuple[tuple[str, str], ...]:
        """Return the process-wide switches of TE and torch that a checkpoint may touch, by name."""
        return (
            ("recompute region", str(getattr(te_distributed, self._region_flag))),
            ("recompute phase", str(getattr(te_distributed, self._phase_flag))),
            ("autocast depth", str(self._autocast_depth())),
            ("FP8 enabled", str(FP8GlobalStateManager.is_fp8_enabled())),
            ("grad enabled", str(torch.is_grad_enabled())),
            ("inference mode", str(torch.is_inference_mode_enabled())),
            ("torch autocast", str(torch.is_autocast_enabled("cuda"))),
            ("torch autocast on the CPU", str(torch.is_autocast_enabled("cpu"))),
            ("default dtype", str(torch.get_default_dtype())),
            ("deterministic algorithms", str(torch.are_deterministic_algorithms_enabled())),
        )

    def reset(self) -> None:
        """Put everything that TE keeps per process back to how it was at import, and torch's switches.

        ``FP8GlobalStateManager.reset`` clears the recompute queues, but neither the list of first-module
        flags, nor the region and phase flags, nor the process-wide reentrant flag (2.20.2).
        """
        FP8GlobalStateManager.reset()
        self.first_flags().clear()
        setattr(te_distributed, self._region_flag, False)
        setattr(te_distributed, self._phase_flag, False)
        setattr(te_distributed, _REENTRANT_FLAG, True)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        for device in ("cuda", "cpu"):
            torch.set_autocast_enabled(device, False)
        # The last attention's parameters are cached, and with them its FP8 state.
        _ATTENTION._attention_backends["attention_params"] = None

    def fp8_modules(self, root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
        """Return the modules below ``root`` that push and pop snapshots, with their paths."""
        return [(name, m) for name, m in root.named_modules() if isinstance(m, TransformerEngineBaseModule)]

    def is_delayed(self, module: torch.nn.Module) -> bool:
        """Whether the module's last forward ran under delayed scaling, with state to snapshot."""
        meta: dict[str, Any] = module.fp8_meta  # type: ignore[assignment]
        recipe = meta.get("recipe")
        return bool(module.fp8) and "scaling_fwd" in meta and recipe is not None and recipe.delayed()

    def live_scales(self, module: torch.nn.Module) -> list[torch.Tensor]:
        """Return copies of a module's own forward scale and amax history, which a recompute must put back."""
        meta: dict[str, Any] = module.fp8_meta  # type: ignore[assignment]
        return [tensor.detach().clone() for name, tensor in _scaling("", meta) if ".scaling_fwd." in name]

    def holders(self, root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
        """Return the modules below ``root`` that may hold FP8 state, with their paths.

        Modules keep it in ``fp8_meta``; operations of ``te.ops`` in ``_fp8_metas`` (both private).
        """
        kept = TransformerEngineBaseModule
        return [(name, m) for name, m in root.named_modules() if isinstance(m, kept) or hasattr(m, _OPS)]

    def fp8_state(self, holders: Iterable[tuple[str, torch.nn.Module]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each scale and amax history of ``holders``: float32, [tensors] and [history, tensors]."""
        for path, module in holders:
            if isinstance(module, TransformerEngineBaseModule):
                yield from _scaling(path, module.fp8_meta)
            else:
                for direction, meta in (getattr(module, _OPS) or {}).items():
                    yield from _scaling(f"{path}.{direction}", meta or {})


class Layout2_1(Probe):  # noqa: N801 - a release has dots
    """Class attributes of ``FP8GlobalStateManager``."""

    name = "class attributes (2.1 to 2.8)"

    def _queues(self) -> list[deque[Any]]:
        queues: list[deque[Any]] = FP8GlobalStateManager.fp8_tensors_recompute_buffer
        return queues

    def _autocast_depth(self) -> int:
        return int(FP8GlobalStateManager.FP8_AUTOCAST_DEPTH)


class Layout2_9(Layout2_1):  # noqa: N801
    """Class attributes of ``FP8GlobalStateManager``, no longer named after FP8 alone."""

    name = "class attributes (2.9 to 2.14)"

    def _autocast_depth(self) -> int:
        return int(FP8GlobalStateManager.AUTOCAST_DEPTH)


class Layout2_15(Probe):  # noqa: N801
    """Attributes of ``FP8GlobalStateManager.quantization_state``."""

    name = "quantization_state (2.15 and newer)"

    def _queues(self) -> list[deque[Any]]:
        queues: list[deque[Any]] = FP8GlobalStateManager.quantization_state.fp8_tensors_recompute_buffer
        return queues

    def _autocast_depth(self) -> int:
        return int(FP8GlobalStateManager.quantization_state.autocast_depth)


def detect() -> Probe:
    """Return the probe for the imported TE.

    Raises:
        CannotRunHere: its state is laid out in a way that no probe knows.
    """
    if hasattr(FP8GlobalStateManager, "quantization_state"):
        return Layout2_15()
    if hasattr(FP8GlobalStateManager, "AUTOCAST_DEPTH"):
        return Layout2_9()
    if hasattr(FP8GlobalStateManager, "FP8_AUTOCAST_DEPTH"):
        return Layout2_1()
    raise CannotRunHere("This Transformer Engine keeps its FP8 state where no probe looks: use 2.1 to 2.20.")


def _present(names: tuple[str, ...]) -> str:
    for name in names:
        if hasattr(te_distributed, name):
            return name
    raise CannotRunHere(f"This Transformer Engine has none of {', '.join(names)}: use 2.1 to 2.20.")


def _scaling(path: str, meta: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for direction in ("scaling_fwd", "scaling_bwd"):
        state = meta.get(direction)
        if hasattr(state, "amax_history"):
            yield f"{path}.{direction}.scale", state.scale  # type: ignore[union-attr]
            yield f"{path}.{direction}.amax_history", state.amax_history  # type: ignore[union-attr]
