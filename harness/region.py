"""Regions: the torch modules of what runs under the checkpoint, and what they ask of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import torch

from harness import case as c
from harness.api import Context
from harness.grad_modes import GRAD_MODES


class RegionCaller(Protocol):
    """What a region asks of the run it is part of: to call its callable, checkpointed or not."""

    def call_region(self, region: RegionModule, x: torch.Tensor) -> Any:
        """Call ``region.function`` on ``x`` and the region's other arguments, and return what it does."""

    def region_runs(self, region: RegionModule) -> None:
        """Note that the region's callable is being run."""

    def region_ends(self) -> None:
        """Note that the callable of the region that was entered last is done, or has raised."""

    def region_enters(self, region: RegionModule, context: str) -> None:
        """Note that a context of the region is being entered: "forward" or "recompute"."""


class GainModule(torch.nn.Module):
    """The body times a second argument, a float or a tensor of one element."""

    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, gain: float | torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        out: torch.Tensor = self.body(x) * gain
        return out


_Results: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]


class TupleModule(torch.nn.Module):
    """The body, its result returned as several: scaled, as it is, without gradient, and a float."""

    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *args: Any, **kwargs: Any) -> _Results:
        """Map [..., width] to tensors of the same shape, and a float."""
        out: torch.Tensor = self.body(*args, **kwargs)
        return 0.5 * out, out, out.detach(), 0.25

    @staticmethod
    def joined(results: _Results) -> torch.Tensor:
        """Return the sum of the results, each weighted otherwise, so that none can stand for another."""
        scaled, plain, detached, factor = results
        return scaled + factor * plain + 2 * detached


class AlsoModule(torch.nn.Module):
    """The body's result, and the input that it is given a second time, added up."""

    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, *args: Any, also: Any = None, **kwargs: Any) -> torch.Tensor:
        """Map [..., width] to the same shape; ``also``, a tensor or a list, may be the first of ``args``."""
        if also is None:
            also, *args = args  # type: ignore[assignment] # a list will do
        second = also[0] if isinstance(also, list) else also
        out: torch.Tensor = self.body(x, *args, **kwargs) + second
        return out


class _Told:
    """A grad mode that tells each time that it is entered; like torch's own, it can be entered again."""

    def __init__(self, tell: Callable[[], None], mode: Callable[[], Context]) -> None:
        self._tell = tell
        self._mode = mode
        self._entered: list[Context] = []

    def __enter__(self) -> None:
        self._tell()
        self._entered.append(self._mode())
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


class _Owner:
    """An object that is no module, whose bound method a region may hand to the checkpoint."""

    def __init__(self, body: torch.nn.Module) -> None:
        self.body = body

    def apply(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.body(x, *args, **kwargs)


class RegionModule(torch.nn.Module):
    """A region: it leaves to the run whether its callable runs under the checkpoint.

    ``function`` is what the checkpoint is given; ``args`` and ``kwargs`` follow the input.
    """

    def __init__(self, node: c.Region, number: int, body: torch.nn.Module, device: torch.device) -> None:
        super().__init__()
        self.node = node
        self.number = number
        self.body = body if node.gain is None else GainModule(body)
        if node.given != "once":
            self.body = AlsoModule(self.body)
        if node.results == "tuple":
            self.body = TupleModule(self.body)
        self.args, self.kwargs = _gain_arguments(node.gain, device)
        self.caller: RegionCaller | None = None
        self.watch()

    def watch(self) -> None:
        """Tell the caller of each run of the body, as which a copy may have been put in."""
        self.function = self._function()
        # Functions, not methods: a deep copy of the body shares its hooks, and must not copy the region too.
        self._hooks = (
            self.body.register_forward_pre_hook(lambda *_: self._note(begins=True)),
            self.body.register_forward_hook(lambda *_: self._note(begins=False), always_call=True),
        )

    def unwatch(self) -> None:
        """Take the hooks off the body."""
        for hook in self._hooks:
            hook.remove()

    def _function(self) -> Callable[..., Any]:
        if self.node.function == "module":
            return self.body
        if self.node.function == "method":
            return _Owner(self.body).apply
        body = self.body
        return lambda x, *args, **kwargs: body(x, *args, **kwargs)

    def _note(self, *, begins: bool) -> None:
        if self.caller is not None and begins:
            self.caller.region_runs(self)
        elif self.caller is not None:
            self.caller.region_ends()

    def inputs(self, x: torch.Tensor, *, apart: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what the callable is given; ``apart`` makes a view of each tensor that comes by position."""
        first = x.view_as(x) if apart else x
        if self.node.given == "twice":
            return (first, x.view_as(x) if apart else x, *self.args), self.kwargs
        if self.node.given == "by keyword too":
            return (first, *self.args), {**self.kwargs, "also": x}
        if self.node.given == "in a list too":
            return (first, [x, "a note"], *self.args), self.kwargs
        return (first, *self.args), self.kwargs

    def contexts(self) -> tuple[Context, Context]:
        """Return fresh contexts for the forward and the recompute, as ``context_fn`` must."""
        contexts = self.node.contexts or c.Contexts()
        return self._told("forward", contexts.forward), self._told("recompute", contexts.recompute)

    def _told(self, name: str, mode: c.ContextName) -> Context:
        def tell() -> None:
            if self.caller is not None:
                self.caller.region_enters(self, name)

        return _Told(tell, GRAD_MODES[mode])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        assert self.caller is not None, "a region runs only as part of a run"  # noqa: S101
        results = self.caller.call_region(self, x)
        out: torch.Tensor = TupleModule.joined(results) if self.node.results == "tuple" else results
        return out


def _gain_arguments(gain: c.Gain | None, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if gain is None:
        return (), {}
    value = torch.tensor(gain.value, device=device) if gain.as_tensor else gain.value
    return ((), {"gain": value}) if gain.by_keyword else ((value,), {})
