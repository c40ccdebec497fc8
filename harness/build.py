"""From a case to a model: torch modules, one per node, that a run walks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
import transformer_engine.common.recipe as te_recipe
import transformer_engine.pytorch as te

from harness import case as c
from harness.api import Context, autocast, quantized_init, recipe_class
from harness.containers import (
    ContextModule,
    DiscardModule,
    ResidualModule,
    ReuseModule,
    SumModule,
    TwinModule,
)
from harness.grad_modes import GRAD_MODES
from harness.leaves import make_leaf
from harness.region import RegionModule

_FORMATS = {"HYBRID": te_recipe.Format.HYBRID, "E4M3": te_recipe.Format.E4M3}


class Model:
    """A case's module tree with its leaves and regions by number, and the recipe it runs under.

    ``recompute`` false makes the one of a direct run, in which no module recomputes itself.
    """

    def __init__(self, case: c.Case, device: torch.device, *, recompute: bool) -> None:
        self.case = case
        self._recompute = recompute
        self.device = device
        self.recipe = make_recipe(case.recipe)
        """What autocasts entered from now on have, unless they have one of their own."""
        self.tracker = _rng_tracker(case.seed) if case.rng_tracker else None
        self.leaves: list[torch.nn.Module] = []
        self.twins: list[TwinModule] = []
        self.regions: list[RegionModule] = []
        self.meant_delayed: list[bool | None] = []
        """Of each leaf, whether by the case it runs under delayed scaling; None where that may change."""
        self.first_microbatch: bool | None = None
        """What TE's modules are given now as ``is_first_microbatch``."""
        self._around: c.Recipe = c.HighPrecision()
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

    def autocast(self, node: c.Autocast | None = None) -> Context:
        """Return the context of an autocast node, or of one that the schedule opens, as things are now."""
        recipe = self.recipe if node is None or node.recipe is None else make_recipe(node.recipe)
        enabled = recipe is not None and (node is None or node.enabled)
        return autocast(enabled, recipe)

    @contextmanager
    def microbatch(self, first: bool | None) -> Iterator[None]:
        """Give TE's modules ``is_first_microbatch``, where it is not None."""
        around, self.first_microbatch = self.first_microbatch, first
        try:
            yield
        finally:
            self.first_microbatch = around

    def deep_copy(self, *, beside: bool) -> None:
        """Replace every leaf by a deep copy of its own; or make the twins ``beside`` them anew."""
        for region in self.regions:
            region.unwatch()
        if beside:
            for twin in self.twins:
                twin.module = copy.deepcopy(self.leaves[twin.source])
        else:
            self._replace_leaves()
        for region in self.regions:
            region.watch()
        self.parameters = list(self.root.named_parameters())

    def _replace_leaves(self) -> None:
        leaves = [*self.leaves, *(twin.module for twin in self.twins)]
        copies = {id(leaf): copy.deepcopy(leaf) for leaf in leaves}
        for parent in list(self.root.modules()):
            for name, child in parent.named_children():
                if id(child) in copies:
                    setattr(parent, name, copies[id(child)])
        self.root = copies.get(id(self.root), self.root)
        self.leaves = [copies[id(leaf)] for leaf in self.leaves]

    def _build(self, node: c.Node) -> torch.nn.Module:
        if isinstance(node, c.Module):
            return self._leaf(node)
        if isinstance(node, c.Reuse):
            return self._reuse(node)
        if isinstance(node, c.Twin):
            return self._twin(node)
        if isinstance(node, c.Chain):
            return torch.nn.Sequential(*[self._build(child) for child in node.nodes])
        if isinstance(node, c.Sum):
            return SumModule([self._build(branch) for branch in node.branches])
        if isinstance(node, c.Residual):
            return ResidualModule(self._build(node.body), in_place=node.in_place)
        if isinstance(node, c.Discard):
            return DiscardModule(self._build(node.body))
        if isinstance(node, c.Autocast):
            return self._autocast(node)
        if isinstance(node, c.GradMode):
            clone = node.mode == "inference_mode"
            return ContextModule(self._build(node.body), GRAD_MODES[node.mode], clone=clone)
        return self._region(node)

    def _autocast(self, node: c.Autocast) -> torch.nn.Module:
        around = self._around
        self._around = (node.recipe or self.case.recipe) if node.enabled else c.HighPrecision()
        body = self._build(node.body)
        self._around = around
        return ContextModule(body, partial(self.autocast, node))

    def _region(self, node: c.Region) -> torch.nn.Module:
        number = len(self.regions)
        self.regions.append(None)  # type: ignore[arg-type] # holds the place: regions below come after
        body = self._build(node.body)
        shared = any(isinstance(below, c.Reuse | c.Twin) for below in c.walk(self.case.graph))
        if body in self.leaves and shared:
            # Calls of the module from elsewhere, or of a copy with its hooks, are not the region's.
            body = torch.nn.Sequential(body)
        self.regions[number] = RegionModule(node, number, body, self.device)
        return self.regions[number]

    def _leaf(self, node: c.Leaf) -> torch.nn.Module:
        leaf = make_leaf(node, self.case, self.device, self.tracker, recompute=self._recompute)
        if isinstance(node, c.TransformerLayer) and node.recompute and self._recompute:
            _give(leaf, lambda: {"checkpoint_core_attention": True})
        if isinstance(node, _MICROBATCHED) and any(_names_microbatch(step) for step in self.case.schedule):
            _give(getattr(leaf, "grouped", leaf), self._of_microbatch)
        self.leaves.append(leaf)
        self.meant_delayed.append(self._is_delayed_here())
        return leaf

    def _twin(self, node: c.Twin) -> torch.nn.Module:
        copied = copy.deepcopy(self.leaves[node.module])
        self.twins.append(TwinModule(node.module, copied, meant=self._is_delayed_here()))
        return self.twins[-1]

    def _reuse(self, node: c.Reuse) -> torch.nn.Module:
        if self.meant_delayed[node.module] != self._is_delayed_here():
            self.meant_delayed[node.module] = None
        return ReuseModule(self.leaves[node.module])

    def _is_delayed_here(self) -> bool | None:
        if any(isinstance(step, c.SetRecipe | c.OpenAutocast) for step in self.case.schedule):
            return None
        return isinstance(self._around, c.DelayedScaling)

    def _of_microbatch(self) -> dict[str, Any]:
        return {"is_first_microbatch": self.first_microbatch}


_MICROBATCHED = (
    c.Linear, c.LayerNormLinear, c.LayerNormMLP, c.GroupedLinear, c.MultiheadAttention, c.TransformerLayer,
)  # fmt: skip
"""The modules that take ``is_first_microbatch``."""


def _names_microbatch(step: c.Step) -> bool:
    return isinstance(step, c.Forward) and step.first_microbatch is not None


def _give(module: torch.nn.Module, options: Callable[[], dict[str, Any]]) -> None:
    """Add keyword arguments to each call of a module."""
    module.register_forward_pre_hook(
        lambda _module, args, kwargs: (args, {**kwargs, **options()}), with_kwargs=True
    )


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
