"""Gradients are taken so that what is kept neither changes later nor hides how much memory is held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from harness import case as c
from harness.backends.base import Backend
from harness.backends.cuda import CudaBackend
from harness.gradients import Gradients, accumulated, given, gradients_grow


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)


def test_a_later_backward_leaves_what_was_kept_as_it_was() -> None:
    a, b = leaves()
    out = a * b
    (first, _) = accumulated([out], [torch.ones(2)], [a, b], retain=True, copied=True)
    (second, _) = accumulated([out], [torch.ones(2)], [a, b], retain=False, copied=True)
    assert first is not None
    assert second is not None
    assert (first.tolist(), second.tolist()) == ([5.0, 7.0], [10.0, 14.0])


@pytest.mark.parametrize(
    ("schedule", "grow"),
    [
        ((c.Forward(), c.Backward(), c.OptimizerStep(), c.Forward(), c.Backward()), False),
        ((c.Forward(), c.Forward(), c.Backward(), c.Backward()), True),
        ((c.Forward(), c.Backward(), c.Evaluate(), c.Forward(), c.Forward(), c.Backward(losses=2)), False),
        ((c.Forward(), c.Backward(retain=True), c.Forward(), c.Backward(), c.Backward()), True),
    ],
)
def test_gradients_are_copied_where_a_later_backward_adds_to_them(
    schedule: tuple[c.Step, ...], grow: bool
) -> None:
    assert gradients_grow(schedule) is grow


def test_after_several_losses_each_gradient_has_memory_of_its_own() -> None:
    a, b = leaves()
    # As autograd leaves them where one backward hands out the slices of one tensor, and another adds to them.
    a.grad, b.grad = torch.zeros(4).split(2)
    assert a.grad.untyped_storage().nbytes() == 16
    accumulated([a * 2, b * 3], [torch.ones(2), torch.ones(2)], [a, b], retain=False, copied=True)
    assert [a.grad.tolist(), b.grad.tolist()] == [[2.0, 2.0], [3.0, 3.0]]
    assert [leaf.grad.untyped_storage().nbytes() for leaf in (a, b) if leaf.grad is not None] == [8, 8]


@pytest.mark.parametrize(
    "take", [partial(accumulated, copied=True), partial(accumulated, copied=False), given]
)
def test_what_needs_no_gradient_or_gets_none_is_told_as_none(take: Callable[..., Gradients]) -> None:
    a, b = leaves()
    frozen = torch.ones(2)
    found = take([a * frozen], [torch.ones(2)], [a, b, frozen], retain=False)
    assert [None if gradient is None else gradient.tolist() for gradient in found] == [[1.0, 1.0], None, None]
    assert b.grad is None


def test_a_tensor_takes_whole_blocks_of_a_gpu() -> None:
    cuda = CudaBackend("a test")
    sizes = {cuda.footprint(torch.zeros(number, dtype=torch.uint8)) for number in (1, 15, 512)}
    assert sizes == {512}
    assert cuda.footprint(torch.zeros(513, dtype=torch.uint8)) == 1024
    assert Backend.footprint(cuda, torch.zeros(15)) == 60
