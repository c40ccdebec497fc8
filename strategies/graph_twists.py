"""Twists of the graph: what models are built like that no graph of the contract is."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from hypothesis import strategies as st

from harness import case as c
from strategies.regions import Function, is_recognised, torch_linears_recomputed_together
from strategies.trees import (
    appended,
    begun,
    ended,
    mapped,
    places,
    with_body,
    with_region,
    with_steps,
    without_switches,
)

_FLAGS: Final = st.sampled_from([True, False])
_FP8_MODULES: Final[list[c.Leaf]] = [c.Linear(), c.LayerNormLinear(), c.LayerNormMLP(), c.GroupedLinear()]
_REUSABLE: Final = frozenset(type(module) for module in _FP8_MODULES)
_OTHER_RECIPES: Final[list[c.Recipe]] = [
    c.CurrentScaling(), c.DelayedScaling(history=1), c.DelayedScaling(format="E4M3"),
]  # fmt: skip


def _region_numbers(case: c.Case) -> st.SearchStrategy[int]:
    """Draw the number of a region, but of no frozen backbone: nothing in one may come to need a gradient."""
    regions = c.regions(case)
    frozen = all(node.frozen for node in c.walk(regions[0]) if isinstance(node, c.Module))
    first = int(frozen and not case.input_requires_grad)
    # A single region is no backbone, for that stands before another.
    return st.integers(min(first, len(regions) - 1), len(regions) - 1)


@st.composite
def nested(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put the body of a region into a region of its own."""
    number, use_reentrant = draw(_region_numbers(case)), draw(_FLAGS)

    def inner(body: c.Node) -> c.Region:
        # Without TE modules it would go to PyTorch's checkpoint, which is entered with gradients off.
        function: Function = "module" if is_recognised(body, "module") else "callable"
        return c.Region(body, use_reentrant, function)

    return with_body(case, number, inner)


@st.composite
def with_operation(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put an operation of ``te.ops`` into a region of its own, or in an autocast into one with others."""
    if draw(_FLAGS):
        return ended(case, c.Autocast(c.Region(c.OpsLinear(), use_reentrant=draw(_FLAGS))))
    return appended(case, draw(_region_numbers(case)), c.Autocast(c.OpsLinear()))


@st.composite
def with_recomputing(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put a module that recomputes itself after the body of a region."""
    return appended(case, draw(_region_numbers(case)), c.LayerNormMLP(recompute=True))


@st.composite
def with_recomputed_attention(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put a layer that recomputes its core attention into a region or after all else."""
    layer = c.TransformerLayer(recompute=True)
    if draw(_FLAGS):
        return appended(case, draw(_region_numbers(case)), layer)
    return ended(case, c.Autocast(layer))


@st.composite
def opened_inside(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Open the autocasts inside the regions alone, one of which is reentrant."""

    def moved(node: c.Node) -> c.Node:
        if isinstance(node, c.Autocast):
            return node.body
        return (
            msgspec.structs.replace(node, body=c.Autocast(node.body)) if isinstance(node, c.Region) else node
        )

    case = msgspec.structs.replace(case, graph=mapped(case.graph, moved))
    return with_region(
        case,
        draw(_region_numbers(case)),
        lambda region: msgspec.structs.replace(region, use_reentrant=True),
    )


@st.composite
def without_gradient(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Start with a non-reentrant region whose input needs no gradient."""
    first = c.Autocast(c.Region(draw(st.sampled_from(_FP8_MODULES)), use_reentrant=False))
    return msgspec.structs.replace(begun(case, first), input_requires_grad=False)


@st.composite
def saving_nothing(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Add a non-reentrant region in which nothing needs a gradient, so that no recompute comes."""
    module = draw(st.sampled_from(_FP8_MODULES))
    if draw(_FLAGS):
        body = c.Residual(c.GradMode(module, "no_grad"))
        return ended(case, c.Autocast(c.Region(body, use_reentrant=False)))
    region = c.Region(module, use_reentrant=False, contexts=c.Contexts("no_grad", "null"))
    return ended(case, c.Autocast(c.Residual(region)))


@st.composite
def with_result_dropped(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Drop the result of a region, that of a module in one, or that of a module before one."""
    module, use_reentrant = draw(st.sampled_from(_FP8_MODULES)), draw(_FLAGS)
    place = draw(st.sampled_from(["region", "in a region", "before a region"]))
    if place == "region":
        return ended(case, c.Autocast(c.Discard(c.Region(module, use_reentrant))))
    if place == "in a region":
        return appended(case, draw(_region_numbers(case)), c.Discard(module))
    return ended(case, c.Autocast(c.Chain((c.Discard(module), c.Region(c.Linear(), use_reentrant)))))


def changed_in_place(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with a residual that is added up in place, around a region that saves its input in FP8.

    A reentrant region saves its input itself, and autograd says that it was changed.
    """
    region = c.Region(c.Linear(), use_reentrant=False)
    changed = ended(case, c.Autocast(c.Residual(region, in_place=True)))
    # So it would say of the linear in high precision, with and without a checkpoint.
    return st.just(msgspec.structs.replace(changed, recipe=c.DelayedScaling(), torch_autocast=False))


def _recipes_beside(case: c.Case) -> list[c.Recipe]:
    """Return recipes for a part of the graph: others, and the case's but for how it takes amaxes."""
    if not isinstance(case.recipe, c.DelayedScaling):
        return _OTHER_RECIPES
    other: Literal["max", "most_recent"] = "max" if case.recipe.algorithm == "most_recent" else "most_recent"
    return [*_OTHER_RECIPES, msgspec.structs.replace(case.recipe, algorithm=other)]


@st.composite
def with_recipe_of_its_own(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Put a module under another recipe into a region, or one around a region."""
    module, recipe = draw(st.sampled_from(_FP8_MODULES)), draw(st.sampled_from(_recipes_beside(case)))
    if isinstance(recipe, c.DelayedScaling) and recipe not in _OTHER_RECIPES:
        # After a larger one, the largest of a history is not the latest.
        case = with_steps(case, c.Forward(8.0), c.Backward(), c.Forward(), c.Backward())
    # Quantized parameters are of one recipe.
    case = msgspec.structs.replace(case, quantized_parameters=False)
    if draw(_FLAGS):
        return appended(case, draw(_region_numbers(case)), c.Autocast(module, recipe=recipe))
    region = c.Region(module, use_reentrant=draw(_FLAGS))
    if isinstance(case.recipe, c.HighPrecision):
        # Inside an autocast that is off, no autocast ever updates its scales, recomputed or not.
        case = msgspec.structs.replace(case, recipe=c.DelayedScaling())
    return ended(case, c.Autocast(c.Autocast(region, recipe=recipe)))


@st.composite
def under_another_checkpoint(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with a region under PyTorch's checkpoint, or in its ``checkpoint_wrapper``."""
    region = c.Region(
        draw(st.sampled_from(_FP8_MODULES)),
        use_reentrant=draw(_FLAGS),
        checkpointer=draw(st.sampled_from(["torch", "wrapper"])),
    )
    return ended(case, c.Autocast(region))


@st.composite
def given_more(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with a region whose callable is given its input twice: by position, by keyword or in a list."""
    region = c.Region(
        draw(st.sampled_from(_FP8_MODULES)),
        use_reentrant=draw(_FLAGS),
        given=draw(st.sampled_from(["twice", "by keyword too", "in a list too"])),
    )
    return ended(case, c.Autocast(region))


@st.composite
def without_te_modules(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with a reentrant region of torch's modules that is given what PyTorch's checkpoint refuses."""
    refused = [
        c.Region(c.TorchLinear(), gain=c.Gain(2.0, by_keyword=True)),
        c.Region(c.TorchLinear(), contexts=c.Contexts()),
    ]
    return ended(case, draw(st.sampled_from(refused)))


@st.composite
def evaluated_with_gradients(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with a region that switches gradients on around it, and evaluate it all."""
    region = c.Region(draw(st.sampled_from(_FP8_MODULES)), use_reentrant=draw(_FLAGS))
    case = ended(case, c.Autocast(c.GradMode(region, "enable_grad")))
    # Inference mode does not bear gradients inside it.
    kept = (c.Evaluate(s.magnitude) if isinstance(s, c.Evaluate) else s for s in case.schedule)
    steps = (*kept, c.Evaluate(), c.Forward(8.0), c.Backward())
    return msgspec.structs.replace(case, schedule=steps)


@st.composite
def reused(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Use a module once more: in the same region, in another of its own, or outside all.

    One iteration comes after the other: what reentrant regions give a parameter is added to what is there
    one by one, and directly in another order.
    """
    case = _one_by_one(case)
    numbers = _reusable(case)
    if not numbers:
        case = ended(case, c.Autocast(c.Region(c.Linear())))
        numbers = [len(c.modules(case)) - 1]
    if draw(_FLAGS):
        again: c.Node = c.Reuse(draw(st.sampled_from(numbers)))
        elsewhere = [c.Region(again), c.Region(again, use_reentrant=False), again]
        return ended(case, c.Autocast(draw(st.sampled_from(elsewhere)), enabled=draw(_FLAGS)))
    module = draw(st.sampled_from(_FP8_MODULES))
    twice = c.Chain((module, c.Reuse(len(c.modules(case)))))
    around: list[c.Node] = [c.Region(twice), c.Region(twice, use_reentrant=False), twice]
    return ended(case, c.Autocast(draw(st.sampled_from(around))))


@st.composite
def with_copy_beside(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with a deep copy of a module, made anew between two steps, in a region of its own or outside."""
    case = _one_by_one(case)
    numbers = _reusable(case)
    if not numbers:
        case = ended(case, c.Autocast(c.Region(c.Linear())))
        numbers = [len(c.modules(case)) - 1]
    twin = c.Twin(draw(st.sampled_from(numbers)))
    around: list[c.Node] = [c.Region(twin), c.Region(twin, use_reentrant=False), twin]
    case = ended(case, c.Autocast(draw(st.sampled_from(around))))
    moment = draw(st.sampled_from(places(case, pending=False)))
    steps = (c.Forward(8.0), c.Backward(), c.Forward(), c.Backward())
    return with_steps(with_steps(case, c.DeepCopy(beside=True), place=moment), *steps)


def _reusable(case: c.Case) -> list[int]:
    """Return the numbers of the modules that may be used, or copied, for another place.

    Where a part has a recipe with another history there are none: TE refuses a module histories of two
    lengths, with and without a checkpoint.
    """
    own = [node.recipe for node in c.walk(case.graph) if isinstance(node, c.Autocast) and node.recipe]
    lengths = {recipe.history for recipe in (case.recipe, *own) if isinstance(recipe, c.DelayedScaling)}
    if len(lengths) > 1:
        return []
    return [
        number
        for number, leaf in enumerate(c.modules(case))
        if type(leaf) in _REUSABLE and not leaf.frozen and not getattr(leaf, "recompute", False)
    ]


def _one_by_one(case: c.Case) -> c.Case:
    backwards = iter([step for step in case.schedule if isinstance(step, c.Backward)])
    steps: list[c.Step] = []
    for step in case.schedule:
        if isinstance(step, c.Forward):
            steps += [step, next(backwards)]
        elif not isinstance(step, c.Backward):
            steps.append(step)
    return msgspec.structs.replace(case, schedule=tuple(steps))


def tracked_dropout(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with attention in a region that draws its dropout under a tracker of random states."""
    region = c.Autocast(c.Region(c.MultiheadAttention(dropout=0.1)))
    return st.just(msgspec.structs.replace(ended(case, region), rng_tracker=True))


def recomputing_under_torch_autocast(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with a module that recomputes itself, under torch's autocast."""
    if torch_linears_recomputed_together(case.graph) > 1:
        # Rule q of the contract.
        graph = mapped(case.graph, lambda node: c.Linear() if isinstance(node, c.TorchLinear) else node)
        case = msgspec.structs.replace(case, graph=graph)
    module = c.Autocast(c.LayerNormMLP(recompute=True))
    return st.just(msgspec.structs.replace(ended(case, module), torch_autocast=True))


def inferred_first(case: c.Case) -> st.SearchStrategy[c.Case]:
    """Begin with an evaluation in inference mode, without grad modes, not all of which it bears inside."""

    def changed(node: c.Node) -> c.Node:
        if isinstance(node, c.GradMode):
            return node.body
        return msgspec.structs.replace(node, contexts=None) if isinstance(node, c.Region) else node

    plain = without_switches(msgspec.structs.replace(case, graph=mapped(case.graph, changed)))
    schedule = (c.Evaluate(mode="inference_mode"), *plain.schedule)
    return st.just(msgspec.structs.replace(plain, schedule=schedule))
