"""Checkpointers with one fault each: what an oracle must notice, and no other oracle can."""

from __future__ import annotations

from typing import Any

import torch
import transformer_engine.pytorch as te
from transformer_engine.pytorch.module.base import FP8GlobalStateManager

HOARD: list[torch.Tensor] = []


class _DoubledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return 2 * gradients[0]


def changes_outputs(function: Any, *args: Any, **kwargs: Any) -> Any:
    return te.checkpoint(function, *args, **kwargs) + 1.0


def changes_input_gradients(function: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    doubled = _DoubledGradient.apply(x)  # type: ignore[no-untyped-call]
    return te.checkpoint(function, doubled, *args, **kwargs)


def changes_parameter_gradients(function: Any, *args: Any, **kwargs: Any) -> Any:
    for parameter in function.parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
    return te.checkpoint(function, *args, **kwargs)


def changes_fp8_state(function: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The input's gradient comes last: what changes then shows in no other result of the iteration."""

    def late(_gradient: torch.Tensor) -> None:
        function.fp8_meta["scaling_fwd"].amax_history[-1] += 1.0

    out = te.checkpoint(function, x, *args, **kwargs)
    x.register_hook(late)
    return out


def pushes_once_more(function: Any, *args: Any, **kwargs: Any) -> Any:
    out = te.checkpoint(function, *args, **kwargs)
    FP8GlobalStateManager.copy_forward_fp8_meta_tensors_for_recompute(function.fp8_meta)
    return out


def swaps_snapshot_for_an_equal_one(function: Any, *args: Any, **kwargs: Any) -> Any:
    out = te.checkpoint(function, *args, **kwargs)
    FP8GlobalStateManager.copy_forward_fp8_meta_tensors_for_recompute(function.fp8_meta)
    state = getattr(FP8GlobalStateManager, "quantization_state", FP8GlobalStateManager)
    queue = state.fp8_tensors_recompute_buffer[function.fp8_meta["global_fp8_buffer_pos_fwd_recompute"]]
    queue.popleft()
    return out


def does_not_recompute(
    function: Any,
    *args: Any,
    use_reentrant: bool = True,  # noqa: ARG001
    **kwargs: Any,
) -> Any:
    return function(*args, **kwargs)


def advances_the_rng(function: Any, *args: Any, **kwargs: Any) -> Any:
    torch.rand(1)
    return te.checkpoint(function, *args, **kwargs)


def raises(function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
    raise RuntimeError("planted")


def hoards(function: Any, *args: Any, **kwargs: Any) -> Any:
    out = te.checkpoint(function, *args, **kwargs)
    HOARD.append(torch.zeros(1024, device=out.device))
    return out
