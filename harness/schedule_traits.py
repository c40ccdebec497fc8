"""Schedule traits: what a case's schedule does that no schedule of the contract does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harness import case as c
from harness.graph_traits import enables_around_a_region
from harness.validity import pending_after

if TYPE_CHECKING:
    from collections.abc import Callable


def _any(test: Callable[[c.Step], bool]) -> Callable[[c.Case], bool]:
    return lambda case: any(test(step) for step in case.schedule)


def _any_backward(test: Callable[[c.Backward], bool]) -> Callable[[c.Case], bool]:
    return _any(lambda step: isinstance(step, c.Backward) and test(step))


def _amid(kind: type[c.Step]) -> Callable[[c.Case], bool]:
    """Tell whether there is such a step while a graph is pending."""
    return lambda case: any(
        isinstance(step, kind) and pending > 0
        for step, pending in zip(case.schedule, pending_after(case.schedule), strict=True)
    )


def _recipes_differ_in_the_algorithm(case: c.Case) -> bool:
    """Tell whether two delayed-scaling recipes are alike but for how they take amaxes from a history."""
    own = (node.recipe for node in c.walk(case.graph) if isinstance(node, c.Autocast))
    changed = (step.recipe for step in case.schedule if isinstance(step, c.SetRecipe))
    delayed = {recipe for recipe in (case.recipe, *own, *changed) if isinstance(recipe, c.DelayedScaling)}
    return len({msgspec.structs.replace(recipe, algorithm="max") for recipe in delayed}) < len(delayed)


def _changes_recipe_amid(case: c.Case) -> bool:
    """Tell whether another recipe than that of now is set while a graph is pending."""
    recipe: c.Recipe = case.recipe
    for step, pending in zip(case.schedule, pending_after(case.schedule), strict=True):
        if isinstance(step, c.SetRecipe):
            if pending and step.recipe != recipe:
                return True
            recipe = step.recipe
    return False


def _evaluates_with_gradients(case: c.Case) -> bool:
    """Tell whether an evaluation meets a region around which gradients are switched on."""
    evaluates = any(isinstance(step, c.Evaluate) for step in case.schedule)
    return evaluates and enables_around_a_region(case.graph)


def _tells_microbatch_to_recomputing(case: c.Case) -> bool:
    """Tell whether a module that recomputes itself is told first microbatches from others."""
    told = any(isinstance(step, c.Forward) and step.first_microbatch is not None for step in case.schedule)
    return told and any(isinstance(node, c.LayerNormMLP) and node.recompute for node in c.walk(case.graph))


def _infers_first(case: c.Case) -> bool:
    """Tell whether the first that runs, of all, with another recipe or of a copy, runs in inference mode."""
    first = True
    for step in case.schedule:
        if isinstance(step, c.SetRecipe) or (isinstance(step, c.DeepCopy) and step.beside):
            first = True
        elif isinstance(step, c.Evaluate):
            if first and step.mode == "inference_mode":
                return True
            first = False
        elif isinstance(step, c.Forward) and step.fails is None:
            # One that fails may not have come to every module.
            first = False
    return False


TRAITS: Final[dict[str, Callable[[c.Case], bool]]] = {
    "forward abandoned": _any(lambda step: isinstance(step, c.Abandon)),
    "backwards out of order": _any_backward(lambda step: step.which > 0),
    "several losses in one backward": _any_backward(lambda step: step.losses > 1),
    "graph retained": _any_backward(lambda step: step.retain),
    "gradients by autograd.grad": _any_backward(lambda step: step.way == "grad"),
    "evaluation while a graph is pending": _amid(c.Evaluate),
    "evaluation with gradients on around a region": _evaluates_with_gradients,
    "first forward in inference mode": _infers_first,
    "several steps in one autocast": _any(lambda step: isinstance(step, c.OpenAutocast)),
    "recipes that differ in the algorithm alone": _recipes_differ_in_the_algorithm,
    "recipe changed": _any(lambda step: isinstance(step, c.SetRecipe)),
    "recipe changed while a graph is pending": _changes_recipe_amid,
    "state loaded": _any(lambda step: isinstance(step, c.LoadState) and not step.extra),
    "extra state loaded while a graph is pending": _amid(c.LoadState),
    "modules deep-copied": _any(lambda step: isinstance(step, c.DeepCopy) and not step.beside),
    "region raising in a forward": _any(lambda step: isinstance(step, c.Forward) and step.fails is not None),
    "region raising in a backward": _any_backward(lambda step: step.fails is not None),
    "first microbatches told": _any(
        lambda step: isinstance(step, c.Forward) and step.first_microbatch is not None
    ),
    "first microbatches told to a module that recomputes itself": _tells_microbatch_to_recomputing,
}
"""The traits, each with what tells whether a case has it."""
