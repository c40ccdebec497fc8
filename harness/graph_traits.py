"""Graph traits: what a case's graph has that no graph of the contract has."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import msgspec

from harness import case as c
from harness.nodes import GRADIENTS_CUT, GRADIENTS_ON
from harness.validity import dropout_of, pending_at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Above = tuple[c.Node, ...]

TORCHS: Final = (c.TorchLinear, c.TorchLayerNorm, c.TorchGELU, c.TorchDropout, c.OpsLinear)
"""The modules that ``te.checkpoint`` does not take for its own (distributed.py, get_te_classes)."""


def with_parents(node: c.Node, above: Above = ()) -> Iterator[tuple[c.Node, Above]]:
    """Yield each node with the nodes above it, outermost first."""
    yield node, above
    for child in c.children(node):
        yield from with_parents(child, (*above, node))


def enclosing(above: Above) -> list[c.Region]:
    """Return the regions among these nodes."""
    return [node for node in above if isinstance(node, c.Region)]


def enables_around_a_region(graph: c.Node) -> bool:
    """Tell whether a grad mode switches gradients on around a region."""
    return any(
        isinstance(node, c.GradMode)
        and node.mode in GRADIENTS_ON
        and any(isinstance(below, c.Region) for below in c.walk(node))
        for node in c.walk(graph)
    )


def modules_with_parents(case: c.Case) -> Iterator[tuple[c.Leaf, Above]]:
    """Yield each use of a module, a copy's too, with the nodes above it, outermost first."""
    numbered = c.modules(case)
    for node, above in with_parents(case.graph):
        if isinstance(node, c.Reuse | c.Twin):
            yield numbered[node.module], above
        elif isinstance(node, c.Module):
            yield node, above


def recipe_in(case: c.Case, above: Above) -> c.Recipe:
    """Return the recipe of the innermost autocast among these nodes; ``HighPrecision`` where FP8 is off."""
    casts = [node for node in above if isinstance(node, c.Autocast)]
    if not casts or not casts[-1].enabled:
        return c.HighPrecision()
    return casts[-1].recipe or case.recipe


def nested_regions(case: c.Case) -> frozenset[int]:
    """Return the numbers of the regions that stand inside another, or have another inside."""
    found: set[int] = set()
    open_: list[tuple[int, Above]] = []
    for number, (region, above) in enumerate(_regions(case)):
        # In the order of a walk: the regions around this one are the last ones with fewer nodes above them.
        around = [other for other, path in open_ if len(path) <= len(above) and above[: len(path)] == path]
        if around:
            found |= {number, *around}
        open_.append((number, (*above, region)))
    return frozenset(found)


def dropped_regions(case: c.Case) -> frozenset[int]:
    """Return the numbers of the regions whose results are dropped."""
    numbered = zip(itertools.count(), _regions(case), strict=False)
    return frozenset(
        number for number, (_, above) in numbered if any(isinstance(node, c.Discard) for node in above)
    )


def _regions(case: c.Case) -> Iterator[tuple[c.Region, Above]]:
    for node, above in with_parents(case.graph):
        if isinstance(node, c.Region):
            yield node, above


def _enters_with_gradients(above: Above) -> bool:
    modes = [node.mode for node in above if isinstance(node, c.GradMode)]
    return not modes or modes[-1] not in GRADIENTS_CUT


def in_fp8(case: c.Case, above: Above) -> bool:
    """Tell whether FP8 is on below these nodes, by the recipe that the case begins with."""
    return not isinstance(recipe_in(case, above), c.HighPrecision)


def at_any_forward(test: Callable[[c.Case], bool]) -> Callable[[c.Case], bool]:
    """Return what tells whether a test of recipes holds of a case as any of its forwards meets it.

    Between them the schedule may change the recipe, and open autocasts around the whole graph.
    """
    return lambda case: any(test(met) for met in _as_met(case))


def _as_met(case: c.Case) -> Iterator[c.Case]:
    """Yield the case as its forwards and evaluations meet it, each state of the recipes once."""
    recipe, opened = case.recipe, list[c.Recipe]()
    met = set[tuple[c.Recipe, ...]]()
    for step in case.schedule:
        if isinstance(step, c.SetRecipe):
            recipe = step.recipe
        elif isinstance(step, c.OpenAutocast):
            opened.append(recipe)
        elif isinstance(step, c.CloseAutocast):
            opened.pop()
        elif isinstance(step, c.Forward | c.Evaluate) and (now := (recipe, *opened[-1:])) not in met:
            met.add(now)
            graph = c.Autocast(case.graph, recipe=opened[-1]) if opened else case.graph
            yield msgspec.structs.replace(case, recipe=recipe, graph=graph)


# --- What a region stands over ---


def _runs_operations_in_fp8(case: c.Case) -> bool:
    return any(
        isinstance(leaf, c.OpsLinear) and bool(enclosing(above)) and in_fp8(case, above)
        for leaf, above in modules_with_parents(case)
    )


def _shares_its_queue(case: c.Case) -> bool:
    """Tell whether a module that recomputes itself stands in a region, so that both push to its queue.

    They get into each other's way where it runs with gradients on in the forward of the region, or where
    a further forward has pushed before the backward.
    """
    return any(
        isinstance(leaf, c.LayerNormMLP)
        and leaf.recompute
        and bool(enclosing(above))
        and (_keeps_gradients(above) or pending_at_most(case) > 1)
        for leaf, above in modules_with_parents(case)
    )


def _keeps_gradients(above: Above) -> bool:
    """Tell whether gradients are on here in a forward: a reentrant region switches them off at first."""
    on = True
    for node in above:
        if isinstance(node, c.Region):
            on = on and not node.use_reentrant
            if node.contexts is not None and node.contexts.forward != "null":
                on = node.contexts.forward == "enable_grad"
        elif isinstance(node, c.GradMode):
            on = node.mode not in GRADIENTS_CUT
    return on


def _recomputes_attention(case: c.Case, *, in_region: bool) -> bool:
    return any(
        isinstance(leaf, c.TransformerLayer) and leaf.recompute and bool(enclosing(above)) == in_region
        for leaf, above in modules_with_parents(case)
    )


def _opens_in_reentrant(case: c.Case) -> bool:
    """Tell whether the first autocast on the way to a module is opened inside a reentrant region."""
    return any(
        isinstance(node, c.Autocast)
        and node.enabled
        and not in_fp8(case, above)
        and in_fp8(case, (*above, node))
        and any(region.use_reentrant for region in enclosing(above))
        for node, above in with_parents(case.graph)
    )


def _closes_without_gradients(case: c.Case) -> bool:
    """Tell whether an outermost FP8 autocast ends with gradients off, and so without updating scales."""
    return any(
        isinstance(node, c.Autocast)
        and not in_fp8(case, above)
        and in_fp8(case, (*above, node))
        and not _has_gradients(above)
        for node, above in with_parents(case.graph)
    )


def _has_gradients(above: Above) -> bool:
    """Tell whether gradients are on below these nodes in a forward, by grad modes and regions' contexts."""
    on = True
    for node in above:
        if isinstance(node, c.GradMode):
            on = node.mode not in GRADIENTS_CUT
        elif isinstance(node, c.Region) and node.contexts is not None and node.contexts.forward != "null":
            on = node.contexts.forward not in GRADIENTS_CUT
    return on


def _has_recipe_of_its_own(case: c.Case, *, in_region: bool) -> bool:
    return any(
        isinstance(node, c.Autocast) and node.recipe is not None and bool(enclosing(above)) == in_region
        for node, above in with_parents(case.graph)
    )


# --- What a region is given, and what becomes of its result ---


def _starts_without_gradient(case: c.Case) -> bool:
    """Tell whether a non-reentrant region is given the graph's input, which needs no gradient."""
    return not case.input_requires_grad and any(
        isinstance(node, c.Region) and not node.use_reentrant for node in _first(case.graph)
    )


def _first(node: c.Node) -> Iterator[c.Node]:
    """Yield the nodes that are given the graph's input itself, down to the regions and modules."""
    yield node
    if isinstance(node, c.Region | c.Module):
        return
    below = c.children(node)
    for child in below[:1] if isinstance(node, c.Chain) else below:
        yield from _first(child)


def _saves_nothing(case: c.Case) -> bool:
    """Tell whether a non-reentrant region is entered with gradients, and nothing in it needs one."""
    return _has_frozen_start(case) or any(
        not region.use_reentrant
        and _enters_with_gradients(above)
        and (
            (region.contexts is not None and region.contexts.forward == "no_grad")
            or not any(_enters_with_gradients(below) for below in _modules_in(region))
        )
        for region, above in _regions(case)
    )


def _has_frozen_start(case: c.Case) -> bool:
    """Tell whether a non-reentrant region of frozen modules is given an input that needs no gradient."""
    return not case.input_requires_grad and any(
        isinstance(node, c.Region)
        and not node.use_reentrant
        and all(leaf.frozen for leaf in c.leaves(case, node))
        for node in _first(case.graph)
    )


def _modules_in(region: c.Region) -> Iterator[Above]:
    """Yield what stands above each module of a region, inside it, whose result is not dropped."""
    for node, above in with_parents(region.body):
        if isinstance(node, c.Module | c.Reuse | c.Twin) and not any(isinstance(n, c.Discard) for n in above):
            yield above


def _drops_a_module(case: c.Case) -> bool:
    return any(
        isinstance(node, c.Discard) and not any(isinstance(below, c.Region) for below in c.walk(node))
        for node in c.walk(case.graph)
    )


def _changes_input_in_place(case: c.Case) -> bool:
    return any(
        not region.use_reentrant and any(isinstance(node, c.Residual) and node.in_place for node in above)
        for region, above in _regions(case)
    )


def _is_given(case: c.Case, given: str) -> bool:
    return any(region.given == given for region, _ in _regions(case))


def _gives_torch_what_it_refuses(case: c.Case) -> bool:
    return any(
        region.use_reentrant
        and region.function == "module"
        and all(isinstance(leaf, TORCHS) for leaf in c.leaves(case, region.body))
        and (
            region.contexts is not None
            or (region.gain is not None and region.gain.by_keyword)
            or region.given == "by keyword too"
        )
        for region, _ in _regions(case)
    )


def _is_checkpointed_by(case: c.Case, checkpointer: str) -> bool:
    return any(region.checkpointer == checkpointer for region, _ in _regions(case))


# --- Settings ---


def _tracks_dropout_in_a_region(case: c.Case) -> bool:
    return case.rng_tracker and any(
        dropout_of(leaf) > 0 and bool(enclosing(above)) for leaf, above in modules_with_parents(case)
    )


def _recomputes_itself_under_torch_autocast(case: c.Case) -> bool:
    return case.torch_autocast and any(
        isinstance(node, c.LayerNormMLP) and node.recompute for node in c.walk(case.graph)
    )


TRAITS: Final[dict[str, Callable[[c.Case], bool]]] = {
    "nested regions": lambda case: bool(nested_regions(case)),
    "te.ops in a region": at_any_forward(_runs_operations_in_fp8),
    "module that recomputes itself shares its queue with a region": _shares_its_queue,
    "core attention recomputed in a region": lambda case: _recomputes_attention(case, in_region=True),
    "core attention recomputed outside regions": lambda case: _recomputes_attention(case, in_region=False),
    "autocast opened in a reentrant region": at_any_forward(_opens_in_reentrant),
    "autocast closed with gradients off": at_any_forward(_closes_without_gradients),
    "recipe of its own in a region": lambda case: _has_recipe_of_its_own(case, in_region=True),
    "recipe of its own around a region": lambda case: _has_recipe_of_its_own(case, in_region=False),
    "non-reentrant region without input gradient": _starts_without_gradient,
    "non-reentrant region that saves nothing": _saves_nothing,
    "result of a region dropped": lambda case: bool(dropped_regions(case)),
    "result of a module dropped": _drops_a_module,
    "input of a non-reentrant region changed in place": _changes_input_in_place,
    "input given twice": lambda case: _is_given(case, "twice"),
    "input given by keyword too": lambda case: _is_given(case, "by keyword too"),
    "input given in a list too": lambda case: _is_given(case, "in a list too"),
    "torch's modules given what PyTorch's checkpoint refuses": _gives_torch_what_it_refuses,
    "PyTorch's checkpoint": lambda case: _is_checkpointed_by(case, "torch"),
    "checkpoint_wrapper": lambda case: _is_checkpointed_by(case, "wrapper"),
    "tracked dropout in a region": _tracks_dropout_in_a_region,
    "module that recomputes itself under torch autocast": _recomputes_itself_under_torch_autocast,
}
"""The traits, each with what tells whether a case has it."""
