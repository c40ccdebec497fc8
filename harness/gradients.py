"""Gradients: how a run takes them, by either function of ``torch.autograd``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch

from harness import case as c

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensors: TypeAlias = "Sequence[torch.Tensor]"
Gradients: TypeAlias = list[torch.Tensor | None]
"""Of each tensor that gradients were wanted of, its gradient; None where it needs none or got none."""


def gradients_grow(schedule: Sequence[c.Step]) -> bool:
    """Tell whether some backward adds to gradients that an earlier one left.

    Each forward takes the parameters' gradients away, and brings an input that has none yet; a graph that is
    retained has another backward.
    """
    fresh = True
    for step in schedule:
        if isinstance(step, c.Forward):
            fresh = True
        elif isinstance(step, c.Backward):
            if step.retain or not fresh:
                return True
            fresh = False
    return False


def accumulated(
    outs: Tensors, incoming: Tensors, wanted: Tensors, *, retain: bool, copied: bool
) -> Gradients:
    """Go backward with ``torch.autograd.backward``, and return what is in ``grad`` then.

    It is to be ``copied`` where a later backward adds to the same tensors; each copy costs a launch.
    """
    torch.autograd.backward(outs, incoming, retain_graph=retain)
    if len(outs) > 1:
        _separate(wanted)
    if not copied:
        return [leaf.grad for leaf in wanted]
    return [None if leaf.grad is None else leaf.grad.detach().clone() for leaf in wanted]


def _separate(leaves: Tensors) -> None:
    """Give each gradient memory of its own.

    One backward hands out slices of one tensor, such as those of the biases of query, key and value. The sum
    over several losses is made of slices where regions add to them one by one, and directly it is not: by
    its rounding, a GPU's allocator would seem to hold more in one run (seen on an H200).
    """
    for leaf in leaves:
        if leaf.grad is not None:
            leaf.grad = leaf.grad.clone()


def given(outs: Tensors, incoming: Tensors, wanted: Tensors, *, retain: bool) -> Gradients:
    """Return what ``torch.autograd.grad`` gives.

    It is kept as it is. Were it copied, the originals would be freed when autograd's thread for the GPU lets
    go of them, which may be after the memory held was measured (seen on an H200).
    """
    learned = [leaf for leaf in wanted if leaf.requires_grad]
    found = iter(torch.autograd.grad(outs, learned, incoming, retain_graph=retain, allow_unused=True))
    return [next(found) if leaf.requires_grad else None for leaf in wanted]
