"""Containers: the torch modules of a graph's inner nodes, but for regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from harness.api import Context


class ResidualModule(torch.nn.Module):
    """``x + body(x)``; ``in_place``, written over a copy of ``x``, which the body was given."""

    def __init__(self, body: torch.nn.Module, *, in_place: bool) -> None:
        super().__init__()
        self.body = body
        self.in_place = in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        if self.in_place:
            copy = x.clone()
            return copy.add_(self.body(copy))
        out: torch.Tensor = x + self.body(x)
        return out


class SumModule(torch.nn.Module):
    """The sum of the branches."""

    def __init__(self, branches: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.branches = torch.nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        first, *rest = (branch(x) for branch in self.branches)
        total: torch.Tensor = first
        for term in rest:
            total = total + term
        return total


class ContextModule(torch.nn.Module):
    """The body under a context made anew for each call; the result is cloned where ``clone`` is set."""

    def __init__(self, body: torch.nn.Module, context: Callable[[], Context], *, clone: bool = False) -> None:
        super().__init__()
        self.body = body
        self.context = context
        self.clone = clone

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        with self.context():
            out: torch.Tensor = self.body(x)
        return out.clone() if self.clone else out


class DiscardModule(torch.nn.Module):
    """The input, after the body was run on it for nothing."""

    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        self.body(x)
        return x


class ReuseModule(torch.nn.Module):
    """A module that stands elsewhere in the graph, called once more."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        out: torch.Tensor = self.module(x)
        return out


class TwinModule(ReuseModule):
    """A deep copy of the leaf with this number, which may be made anew.

    ``meant`` says whether by the case it runs under delayed scaling; None where that may change.
    """

    def __init__(self, source: int, module: torch.nn.Module, *, meant: bool | None) -> None:
        super().__init__(module)
        self.source = source
        self.meant = meant
