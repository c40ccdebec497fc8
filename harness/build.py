"""From a case to a model: torch modules, one per node, that a run walks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
import transformer_engine.common.recipe as te_recipe
import transformer_engine.pytorch as te

from harness import case as c
from harness.api import Context, autocast, quantized_init, recipe_class
from harness.leaves import make_leaf

_FORMATS = {"HYBRID": te_recipe.Format.HYBRID, "E4M3": te_recipe.Format.E4M3}
_GRAD_MODES: dict[str, Callable[[], Context]] = {
    "null": nullcontext,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "set_grad_enabled_false": partial(torch.set_grad_enabled, False),
    "set_grad_enabled_true": partial(torch.set_grad_enabled, True),
    "inference_mode": torch.inference_mode,
}


class RegionCaller(Protocol):
    """What a region asks of the run it is part of: to call its callable, checkpointed or not."""

    def call_region(self, region: RegionModule, x: torch.Tensor) -> Any:
        """Call ``region.function`` on ``x`` and the region's other arguments, and return what it does."""

    def region_runs(self, region: RegionModule) -> None:
        """Note that the region's callable is being run."""

    def region_enters(self, region: RegionModule, context: str) -> None:
        """Note that a context of the region is being entered: "forward" or "recompute"."""


class ResidualModule(torch.nn.Module):
    """``x + body(x)``."""

    def __init__(self, body: torch.nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
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
        if node.results == "tuple":
            self.body = TupleModule(self.body)
        self.function = self._function()
        self.args, self.kwargs = _gain_arguments(node.gain, device)
        self.caller: RegionCaller | None = None
        self.body.register_forward_pre_hook(self._note)

    def _function(self) -> Callable[..., Any]:
        if self.node.function == "module":
            return self.body
        if self.node.function == "method":
            return _Owner(self.body).apply
        body = self.body
        return lambda x, *args, **kwargs: body(x, *args, **kwargs)

    def _note(self, _module: torch.nn.Module, _args: tuple[Any, ...]) -> None:
        if self.caller is not None:
            self.caller.region_runs(self)

    def contexts(self) -> tuple[Context, Context]:
        """Return fresh contexts for the forward and the recompute, as ``context_fn`` must."""
        contexts = self.node.contexts or c.Contexts()
        return self._told("forward", contexts.forward), self._told("recompute", contexts.recompute)

    @contextmanager
    def _told(self, name: str, mode: c.ContextName) -> Iterator[None]:
        if self.caller is not None:
            self.caller.region_enters(self, name)
        with _GRAD_MODES[mode]():
            yield

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., width] to the same shape."""
        assert self.caller is not None, "a region runs only as part of a run"  # noqa: S101
        results = self.caller.call_region(self, x)
        out: torch.Tensor = TupleModule.joined(results) if self.node.results == "tuple" else results
        return out


class Model:
    """A case's module tree with its leaves and regions by number, and the recipe it runs under.

    ``recompute`` false makes the one of a direct run, in which no module recomputes itself.
    """

    def __init__(self, case: c.Case, device: torch.device, *, recompute: bool) -> None:
        self.case = case
        self._recompute = recompute
        self.device = device
        self.recipe = make_recipe(case.recipe)
        self.tracker = _rng_tracker(case.seed) if case.rng_tracker else None
        self.leaves: list[torch.nn.Module] = []
        self.regions: list[RegionModule] = []
        self.in_fp8: list[torch.nn.Module] = []
        """The leaves that stand in an enabled autocast, and so must run under the case's recipe."""
        self._fp8 = False
        with ExitStack() as stack:
            if case.quantized_parameters:
                stack.enter_context(quantized_init(self.recipe))
            self.root = self._build(case.graph)
        self.parameters = list(self.root.named_parameters())

    def switches(self) -> tuple[tuple[str, str], ...]:
        """Return each module's mode and whether each parameter is frozen, as one word each."""
        modes = "".join("t" if module.training else "e" for module in self.root.modules())
        grads = "".join("g" if parameter.requires_grad else "f" for _, parameter in self.parameters)
        return ("modes of the modules (t: train, e: eval)", modes), ("parameters (f: frozen)", grads)

    def _build(self, node: c.Node) -> torch.nn.Module:
        if isinstance(node, c.Module):
            return self._leaf(node)
        if isinstance(node, c.Chain):
            return torch.nn.Sequential(*[self._build(child) for child in node.nodes])
        if isinstance(node, c.Residual):
            return ResidualModule(self._build(node.body))
        if isinstance(node, c.Sum):
            return SumModule([self._build(branch) for branch in node.branches])
        if isinstance(node, c.Autocast):
            enabled = node.enabled and self.recipe is not None
            around, self._fp8 = self._fp8, enabled
            body = self._build(node.body)
            self._fp8 = around
            return ContextModule(body, partial(autocast, enabled, self.recipe))
        if isinstance(node, c.GradMode):
            clone = node.mode == "inference_mode"
            return ContextModule(self._build(node.body), _GRAD_MODES[node.mode], clone=clone)
        return self._region(node)

    def _region(self, node: c.Region) -> torch.nn.Module:
        number = len(self.regions)
        self.regions.append(None)  # type: ignore[arg-type] # holds the place: regions below come after
        self.regions[number] = RegionModule(node, number, self._build(node.body), self.device)
        return self.regions[number]

    def _leaf(self, node: c.Leaf) -> torch.nn.Module:
        leaf = make_leaf(node, self.case, self.device, self.tracker, recompute=self._recompute)
        self.leaves.append(leaf)
        self.in_fp8 += [leaf] * self._fp8
        return leaf


def make_recipe(recipe: c.Recipe) -> Any:
    """Return TE's recipe for the case's; None where FP8 is off.

    Raises ReleaseLacks where the installed release has no such recipe.
    """
    if isinstance(recipe, c.DelayedScaling):
        return te_recipe.DelayedScaling(
            fp8_format=_FORMATS[recipe.format],
            amax_history_len=recipe.history,
            amax_compute_algo=recipe.algorithm,
            margin=recipe.margin,
        )
    if isinstance(recipe, c.CurrentScaling):
        return recipe_class("Float8CurrentScaling")(fp8_format=_FORMATS[recipe.format])
    return None


def _rng_tracker(seed: int) -> Callable[[], Any]:
    tracker = te.CudaRNGStatesTracker()
    tracker.add("model-parallel-rng", seed + 1)
    return lambda: tracker


def _gain_arguments(gain: c.Gain | None, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if gain is None:
        return (), {}
    value = torch.tensor(gain.value, device=device) if gain.as_tensor else gain.value
    return ((), {"gain": value}) if gain.by_keyword else ((value,), {})
