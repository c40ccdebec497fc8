"""Sentences: what a case is, in plain English, for the first line of a report."""

from __future__ import annotations

from collections import Counter

from harness import case as c
from harness.validity import pending_at_most

_MOST_SWITCHES = 2
"""How many switches of a mode are told one by one."""

_CHECKPOINTERS: dict[str, list[str]] = {
    "tested": [],
    "torch": ["under PyTorch's checkpoint"],
    "wrapper": ["in a checkpoint_wrapper"],
}

_DEFAULT = c.Case(graph=c.Linear(), schedule=())


def describe(case: c.Case, *, recipe: bool = True) -> str:
    """Return one sentence, or two, that say what a case does; what is default is left out."""
    settings = _settings(case)
    graph = _node(case.graph)
    first = f"{graph}{_recipe(case) if recipe else ''}; {_schedule(case)}."
    first = first[0].upper() + first[1:]
    return f"{first} With {_list(settings)}." if settings else first


# --- The graph ---------------------------------------------------------------------------------------


def _node(node: c.Node) -> str:
    """Name a node, as the subject of a sentence or as a part of another node."""
    if isinstance(node, c.Chain):
        return ", then ".join(_part(child) for child in node.nodes) or "nothing"
    if isinstance(node, c.Sum):
        return "the sum of " + " and ".join(_part(branch) for branch in node.branches)
    if isinstance(node, c.Residual):
        return f"a residual{' in place' if node.in_place else ''} around {_part(node.body)}"
    if isinstance(node, c.Discard):
        return f"{_part(node.body)} whose result is dropped"
    if isinstance(node, c.Reuse):
        return f"module {node.module} again"
    if isinstance(node, c.Twin):
        return f"a copy of module {node.module}"
    return _module(node) if isinstance(node, c.Module) else _wrapped(node)


def _wrapped(node: c.Autocast | c.GradMode | c.Region) -> str:
    """Name a body and what is around it, from the inside out: "Linear in a region, under no_grad"."""
    wrapping = isinstance(node.body, c.Autocast | c.GradMode | c.Region)
    body = _node(node.body) + "," if wrapping else _part(node.body)
    if isinstance(node, c.Region):
        return f"{body} in {_region(node)}"
    if isinstance(node, c.GradMode):
        return f"{body} under {node.mode}"
    if not node.enabled:
        return f"{body} with FP8 off"
    own = "" if node.recipe is None else f" with a recipe of its own ({_traits(node.recipe)})"
    return f"{body} inside an FP8 autocast{own}"


def _part(node: c.Node) -> str:
    """Name a node inside another: in brackets unless it is a single module or a copy of one."""
    return _node(node) if isinstance(node, c.Module | c.Twin) else f"[{_node(node)}]"


def _module(node: c.Leaf) -> str:
    plain = type(node)()
    traits = [] if node.training else ["eval"]
    if node.frozen:
        traits.append("frozen")
    for field in node.__struct_fields__:
        value = getattr(node, field)
        if field not in ("training", "frozen") and value != getattr(plain, field):
            traits.append(_trait(field, value))
    return type(node).__name__ + (f" ({', '.join(traits)})" if traits else "")


def _trait(field: str, value: object) -> str:
    if isinstance(value, bool):
        return field.replace("_", " ") if value else f"no {field}"
    return f"{field} {value:g}" if isinstance(value, float) else f"{field} {value}"


def _region(region: c.Region) -> str:
    kind = "a reentrant region" if region.use_reentrant else "a non-reentrant region"
    traits = [] if region.function == "module" else [f"as a {region.function}"]
    if region.gain is not None:
        way = "by keyword" if region.gain.by_keyword else "by position"
        traits.append(
            f"gain {region.gain.value:g} as a {'tensor' if region.gain.as_tensor else 'float'} {way}"
        )
    if region.contexts is not None:
        traits.append(f"contexts {region.contexts.forward} and {region.contexts.recompute}")
    if region.results == "tuple":
        traits.append("returning a tuple")
    traits += _CHECKPOINTERS[region.checkpointer]
    if region.given != "once":
        traits.append(f"given its input {region.given}")
    return kind + (f" ({', '.join(traits)})" if traits else "")


# --- The rest ----------------------------------------------------------------------------------------


def _recipe(case: c.Case) -> str:
    """Name the recipe, which follows the graph and applies to all its autocasts."""
    autocasts = [node for node in c.walk(case.graph) if isinstance(node, c.Autocast) and node.enabled]
    if not autocasts:
        return ", with no FP8 autocast"
    listed = _traits(case.recipe)
    return (
        f" ({listed})" if isinstance(case.graph, c.Autocast) and case.graph.enabled else f", recipe {listed}"
    )


def _traits(recipe: c.Recipe) -> str:
    traits = [type(recipe).__name__]
    if isinstance(recipe, c.DelayedScaling):
        traits += [recipe.format, f"history {recipe.history}", recipe.algorithm]
        traits += [f"margin {recipe.margin}"] * bool(recipe.margin)
    elif isinstance(recipe, c.CurrentScaling):
        traits.append(recipe.format)
    return ", ".join(traits)


def _schedule(case: c.Case) -> str:
    forwards = [step.magnitude for step in case.schedule if isinstance(step, c.Forward)]
    backwards = [step.magnitude for step in case.schedule if isinstance(step, c.Backward)]
    optimizer_steps = sum(isinstance(step, c.OptimizerStep) for step in case.schedule)
    parts = [_count(len(forwards), "iteration")]
    depth = pending_at_most(case)
    if depth > 1:
        parts.append(f"up to {depth} forwards before a backward")
    if any(size != 1 for size in forwards):
        parts.append(f"inputs of size {_numbers(forwards)}")
    if any(size != 1 for size in backwards):
        parts.append(f"gradients of size {_numbers(backwards)}")
    evaluations = Counter(step.mode for step in case.schedule if isinstance(step, c.Evaluate))
    parts += [f"{_count(count, 'evaluation')} under {mode}" for mode, count in evaluations.items()]
    if optimizer_steps:
        parts.append(_count(optimizer_steps, "optimizer step"))
    return ", ".join([*parts, *_switches(case), *_events(case)])


def _events(case: c.Case) -> list[str]:
    """Say what else happens in a schedule, each kind once."""
    said: list[str] = []
    for step in case.schedule:
        said += _told(step)
    return [f"{what} ({count} times)" if count > 1 else what for what, count in Counter(said).items()]


def _told(step: c.Step) -> list[str]:
    if isinstance(step, c.Forward):
        named = {
            "first microbatches told from others": step.first_microbatch is not None,
            f"region {step.fails} raising in a forward": step.fails is not None,
        }
    elif isinstance(step, c.Backward):
        named = {
            "a backward that is not of the oldest forward": step.which > 0,
            f"{step.losses} losses in one backward": step.losses > 1,
            "a backward by autograd.grad": step.way == "grad",
            "a graph retained": step.retain,
            f"region {step.fails} raising in a backward": step.fails is not None,
        }
    elif isinstance(step, c.DeepCopy):
        named = {"a copy made anew" if step.beside else "the modules deep-copied": True}
    else:
        named = {_EVENTS.get(type(step), ""): type(step) in _EVENTS}
    return [what for what, holds in named.items() if holds]


_EVENTS: dict[type[c.Step], str] = {
    c.Abandon: "a forward abandoned",
    c.OpenAutocast: "an autocast opened for several steps",
    c.SetRecipe: "the recipe changed",
    c.SaveState: "the state saved",
    c.LoadState: "the state loaded",
}


def _switches(case: c.Case) -> list[str]:
    """Say when the mode of which module is set; where that happens often, only how often."""
    several = sum(isinstance(step, c.Forward) for step in case.schedule) > 1
    said, number, pending, amid = [], 0, 0, 0
    for step in case.schedule:
        if isinstance(step, c.Forward):
            number, pending = number + 1, pending + 1
        elif isinstance(step, c.Backward | c.Abandon):
            pending -= 1
        elif isinstance(step, c.SetMode):
            amid += pending > 0
            when = "between forward and backward" if pending else "before the forward"
            which = f" of iteration {number if pending else number + 1}" if several else ""
            mode = "train" if step.training else "eval"
            said.append(f"mode of module {step.module} switched to {mode} {when}{which}")
    if len(said) > _MOST_SWITCHES:
        return [f"{len(said)} modes switched, {amid} of them between forward and backward"]
    return said


def _settings(case: c.Case) -> list[str]:
    named = {
        case.dtype: case.dtype != _DEFAULT.dtype,
        "torch autocast": case.torch_autocast,
        "an RNG tracker": case.rng_tracker,
        "quantized parameters": case.quantized_parameters,
        "an input that needs no gradient": not case.input_requires_grad,
        f"{case.rows} rows": case.rows != _DEFAULT.rows,
        f"width {case.width}": case.width != _DEFAULT.width,
    }
    return [name for name, holds in named.items() if holds]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _numbers(sizes: list[float]) -> str:
    return _list([f"{size:g}" for size in sizes])


def _list(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
