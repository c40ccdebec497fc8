"""Twists of the schedule: what training loops do that no schedule of the contract does."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from hypothesis import strategies as st

from harness import case as c
from harness.validity import pending_after
from strategies.grad_modes import evaluations_of
from strategies.regions import is_recognised
from strategies.trees import ended, mapped, places, with_steps, without_switches

_Steps: TypeAlias = tuple[c.Step, ...]

_TWO: Final = (c.Forward(), c.Forward(8.0))
"""Two forwards, the second of which moves the scales."""

_LAST_FIRST: Final = (c.Backward(which=1), c.Backward())

_WINDOWS: Final[list[tuple[_Steps, _Steps]]] = [
    ((_TWO[0], c.Backward(), _TWO[1], c.Backward()), ()),
    ((*_TWO, c.Backward(), c.Backward()), ()),
    (_TWO, (c.Backward(), c.Backward())),
    ((*_TWO, *_LAST_FIRST), ()),
    (_TWO, _LAST_FIRST),
]
"""What stands in an autocast of several steps, and what comes after it."""

_RECIPES: Final[list[c.Recipe]] = [
    c.DelayedScaling(format="E4M3"), c.DelayedScaling(algorithm="most_recent", margin=1), c.CurrentScaling(),
    c.HighPrecision(),
]  # fmt: skip


@st.composite
def abandoned(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Add a forward whose backward never comes, before any step or after the last."""
    place = draw(st.integers(0, len(case.schedule)))
    pending = [0, *pending_after(case.schedule)][place]
    return with_steps(case, c.Forward(), c.Abandon(pending), place=place)


def out_of_order(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with two forwards, and the backward of the second before that of the first."""
    return st.just(with_steps(case, *_TWO, *_LAST_FIRST))


def joined(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with two forwards whose losses are added up."""
    return st.just(with_steps(case, *_TWO, c.Backward(losses=2)))


def retained(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with a forward whose backward comes twice, on torch's modules alone.

    TE's own give up what they saved in their first backward, with and without a checkpoint.
    """

    def changed(node: c.Node) -> c.Node:
        if isinstance(node, c.Region):
            # As a callable it stays with te.checkpoint; a wrapper takes modules alone.
            checkpointer = "tested" if node.checkpointer == "wrapper" else node.checkpointer
            return msgspec.structs.replace(node, function="callable", checkpointer=checkpointer)
        if isinstance(node, c.Module) and not type(node).__name__.startswith("Torch"):
            return c.TorchLinear(training=node.training, frozen=node.frozen)
        return node

    graph = mapped(case.graph, changed)
    plain = msgspec.structs.replace(case, graph=graph, torch_autocast=False, rng_tracker=False)
    return st.just(with_steps(plain, c.Forward(), c.Backward(retain=True), c.Backward()))


def by_grad(case: c.Case) -> st.SearchStrategy[c.Case]:
    """Take all gradients by ``autograd.grad``, which reentrant regions refuse by their nature."""

    def changed(node: c.Node) -> c.Node:
        if isinstance(node, c.TransformerLayer):
            # Its own region is reentrant.
            return msgspec.structs.replace(node, recompute=False)
        if not isinstance(node, c.Region):
            return node
        # PyTorch's checkpoint calls no context_fn where gradients are off.
        contexts = node.contexts if is_recognised(node.body, node.function) else None
        if contexts is not None and contexts.forward == "no_grad":
            contexts = msgspec.structs.replace(contexts, forward="null")
        return msgspec.structs.replace(node, use_reentrant=False, contexts=contexts)

    steps = (
        msgspec.structs.replace(step, way="grad") if isinstance(step, c.Backward) else step
        for step in case.schedule
    )
    graph = mapped(case.graph, changed)
    return st.just(msgspec.structs.replace(case, graph=graph, schedule=tuple(steps)))


@st.composite
def evaluated_amid(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Evaluate while a graph is pending."""
    modes = evaluations_of(case.graph) or ("no_grad",)
    evaluation = c.Evaluate(draw(st.sampled_from([1.0, 100.0])), draw(st.sampled_from(modes)))
    moments = places(case, pending=True)
    if not moments:
        return with_steps(case, c.Forward(), evaluation, c.Backward())
    return with_steps(case, evaluation, place=draw(st.sampled_from(moments)))


@st.composite
def in_one_autocast(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with two iterations in one autocast, or with two forwards in one and their backwards outside."""
    within, after = draw(st.sampled_from(_WINDOWS))
    return with_steps(case, c.OpenAutocast(), *within, c.CloseAutocast(), *after)


@st.composite
def with_recipe_changed(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Change the recipe between two steps, and run one more iteration; or between two pending forwards."""
    recipe = draw(st.sampled_from(_RECIPES))
    if _keeps_its_recipe(case):
        recipe = c.CurrentScaling()
    if isinstance(recipe, c.DelayedScaling) and isinstance(case.recipe, c.DelayedScaling):
        # TE refuses two lengths of histories in one process, with and without a checkpoint.
        recipe = msgspec.structs.replace(recipe, history=case.recipe.history)
    change = c.SetRecipe(recipe)
    case = msgspec.structs.replace(case, quantized_parameters=False)
    if draw(st.sampled_from([False, True])):
        return with_steps(case, _TWO[0], change, _TWO[1], c.Backward(), c.Backward())
    place = draw(st.integers(0, len(case.schedule)))
    return with_steps(with_steps(case, change, place=place), c.Forward(8.0), c.Backward())


def _keeps_its_recipe(case: c.Case) -> bool:
    """Tell whether neither high precision nor another delayed scaling will do, with and without a checkpoint.

    In high precision a linear saves the input that is changed in place; inside an autocast that is off none
    ever updates its scales; and a recipe of a part's own may have a history of another length.
    """
    return any(
        (isinstance(node, c.Residual) and node.in_place)
        or (isinstance(node, c.Autocast) and node.recipe is not None)
        for node in c.walk(case.graph)
    )


@st.composite
def with_state_loaded(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Load the state, of now or of an earlier moment, and run one more iteration."""
    case = _loadable(case)
    moments = st.sampled_from(places(case, pending=False))
    saved, loaded = sorted([draw(moments), draw(moments)])
    case = with_steps(case, c.LoadState(), place=loaded)
    return with_steps(with_steps(case, c.SaveState(), place=saved), c.Forward(8.0), c.Backward())


def _loadable(case: c.Case) -> c.Case:
    """Return the case without what cannot load its own state, with or without a checkpoint.

    That is ``te.ops``, and FP8 state that was made in inference mode.
    """

    def changed(node: c.Node) -> c.Node:
        if isinstance(node, c.OpsLinear):
            return c.TorchLinear(training=node.training, frozen=node.frozen, bias=node.bias)
        if isinstance(node, c.GradMode) and node.mode == "inference_mode":
            return c.GradMode(node.body, "no_grad")
        return node

    steps = (c.Evaluate(s.magnitude) if isinstance(s, c.Evaluate) else s for s in case.schedule)
    return msgspec.structs.replace(case, graph=mapped(case.graph, changed), schedule=tuple(steps))


def with_extra_state_loaded_amid(case: c.Case) -> st.SearchStrategy[c.Case]:
    """End with an iteration between whose forward and backward the extra state is loaded."""
    return st.just(with_steps(_loadable(case), c.Forward(), c.LoadState(extra=True), c.Backward()))


@st.composite
def deep_copied(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Replace the modules by deep copies, and run one more iteration.

    Without a tracker: its generators, which the modules hold, cannot be copied.
    """
    case = msgspec.structs.replace(case, rng_tracker=False)
    place = draw(st.sampled_from(places(case, pending=False)))
    return with_steps(with_steps(case, c.DeepCopy(), place=place), c.Forward(8.0), c.Backward())


@st.composite
def raising(draw: st.DrawFn, case: c.Case) -> c.Case:
    """Let a region raise in a forward, or one at the end in a backward, and run one more iteration."""
    regions = len(c.regions(case))
    if draw(st.sampled_from([False, True])):
        region = c.Region(c.Linear(), use_reentrant=draw(st.sampled_from([True, False])))
        # With draws after the forward that the recompute repeats.
        case = ended(case, c.Chain((c.Autocast(region), c.TorchDropout())))
        steps: _Steps = (c.Forward(), c.Backward(fails=regions))
    else:
        steps = (c.Forward(fails=draw(st.integers(0, regions - 1))),)
    place = draw(st.sampled_from(places(case, pending=False)))
    return with_steps(with_steps(case, *steps, place=place), c.Forward(8.0), c.Backward())


@st.composite
def in_microbatches(draw: st.DrawFn, case: c.Case) -> c.Case:
    """End with a step of three microbatches, the first of which is told from the others.

    No module is used twice: both uses would write to one cached weight, with and without a checkpoint. Nor is
    one copied, which has no weight in its cache when it is told that its microbatch is not the first.
    """
    graph = mapped(case.graph, lambda node: c.Linear() if isinstance(node, c.Reuse | c.Twin) else node)
    case = msgspec.structs.replace(without_switches(case), graph=graph)
    if draw(st.sampled_from([False, True])):
        case = ended(case, c.Autocast(c.LayerNormMLP(recompute=True)))
    first, other = c.Forward(first_microbatch=True), c.Forward(2.0, first_microbatch=False)
    steps = (first, c.Backward(), other, c.Backward(), other, c.Backward(), c.OptimizerStep())
    return with_steps(case, *steps, first, c.Backward())
