"""The benchmark's case as an engineer would write it without the harness: twins, a loop, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformer_engine.pytorch as te
from transformer_engine.common.recipe import DelayedScaling
from transformer_engine.pytorch.quantization import FP8GlobalStateManager

from tests.benchmarks.benchmark_case import ITERATIONS, ROWS, WIDTH


def build(device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        te.Linear(WIDTH, WIDTH, device=device),
        te.LayerNormLinear(WIDTH, WIDTH, device=device),
        te.LayerNormMLP(WIDTH, 2 * WIDTH, device=device),
    )


def train(
    device: torch.device,
    inputs: list[torch.Tensor],
    gradients: list[torch.Tensor],
    call: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor],
) -> list[torch.Tensor | None]:
    """Run all iterations on a fresh model; return its outputs and gradients."""
    FP8GlobalStateManager.reset()
    model = build(device)
    recipe = DelayedScaling(amax_history_len=4, amax_compute_algo="max")
    results: list[torch.Tensor | None] = []
    for data, gradient in zip(inputs, gradients, strict=True):
        model.zero_grad(set_to_none=True)
        x = data.detach().requires_grad_()
        with te.autocast(enabled=True, recipe=recipe):
            out = call(model, x)
        out.backward(gradient)
        results += [out.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]
    return results


def compare_by_hand(device: torch.device) -> None:
    """Train directly and under a reentrant checkpoint, and compare everything bit by bit."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> list[torch.Tensor]:
        return [torch.randn(ROWS, WIDTH, generator=generator).to(device) for _ in range(ITERATIONS)]

    def checkpointed(model: torch.nn.Module, x: torch.Tensor) -> Any:
        return te.checkpoint(model, x, use_reentrant=True)

    inputs, gradients = draw(), draw()
    direct = train(device, inputs, gradients, lambda model, x: model(x))
    recomputed = train(device, inputs, gradients, checkpointed)
    for expected, actual in zip(direct, recomputed, strict=True):
        assert expected is not None
        assert actual is not None
        assert torch.equal(expected, actual)
