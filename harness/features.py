"""Features: the names of what a case exercises, to see what a run covered and what a domain reaches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, get_args

from harness import case as c
from harness.graph_traits import with_parents
from harness.validity import dropout_of, pending_at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATTERNS: Final = ("spike", "growth", "decay", "zeros", "tiny")
_SPIKE: Final = 100.0
"""How far above every other magnitude, and above 1, a spike stands."""

_TINY: Final = 1e-4

_KINDS: Final = tuple(kind.__name__ for kind in get_args(c.Leaf))
_MODES: Final[tuple[c.GradModeName, ...]] = get_args(c.GradModeName)
_EVALUATIONS: Final = ("no_grad", "inference_mode")

CATALOGUE: Final[tuple[str, ...]] = tuple(
    sorted(
        [
            *(f"module: {kind}" for kind in _KINDS),
            *(f"function: {function}" for function in ("module", "callable", "method")),
            *(f"gain: {way} {what}" for way in ("positional", "keyword") for what in ("float", "tensor")),
            *(f"grad mode around region: {mode}" for mode in _MODES),
            *(f"grad mode inside region: {mode}" for mode in _MODES),
            *(f"context_fn forward: {name}" for name in get_args(c.ContextName)),
            *(f"evaluation: {mode}" for mode in _EVALUATIONS),
            *(f"forward magnitude: {pattern}" for pattern in _PATTERNS),
            *(f"backward magnitude: {pattern}" for pattern in _PATTERNS),
            *(f"iterations: {count}" for count in (1, 2, 3, 4)),
            *(f"recipe: {recipe.__name__}" for recipe in get_args(c.Recipe)),
            *(f"algorithm: {algorithm}" for algorithm in ("max", "most_recent")),
            *(f"format: {name}" for name in ("HYBRID", "E4M3")),
            *(f"dtype: {dtype}" for dtype in get_args(c.Dtype)),
            "activation: not gelu", "autocast around region", "autocast inside region",
            "autocast nested", "autocast off inside", "chain", "dropout", "dropout drawn on the CPU",
            "eval module", "frozen module",
            "history: 1", "input without gradient", "margin: negative", "margin: positive",
            "mode flipped before backward", "mode flipped before forward", "module outside regions",
            "module that recomputes itself", "no autocast", "non-reentrant", "normalization: RMSNorm",
            "optimizer step",
            "quantized parameters", "reentrant", "region of eval modules", "region of frozen modules",
            "region that returns a tuple", "region without TE modules", "residual",
            "several autocasts", "several forwards pending",
            "several regions", "sum",
            "RNG tracker", "torch autocast", "two groups", "without bias",
        ]
    )
)  # fmt: skip
"""The name of every feature."""


def features(case: c.Case) -> frozenset[str]:
    """Return the names, out of ``CATALOGUE``, of what a case exercises."""
    return frozenset(
        [
            *_of_modules(case),
            *_of_regions(case),
            *_of_graph(case.graph),
            *_of_autocasts(case.graph),
            *_of_recipe(case.recipe),
            *_of_schedule(case),
            *_of_settings(case),
        ]
    )


def _of_modules(case: c.Case) -> Iterator[str]:
    for leaf in c.modules(case):
        yield f"module: {type(leaf).__name__}"
        named = {
            "eval module": not leaf.training,
            "frozen module": leaf.frozen,
            "dropout": dropout_of(leaf) > 0,
            "dropout drawn on the CPU": getattr(leaf, "on_cpu", False),
            "without bias": not getattr(leaf, "bias", True),
            "two groups": getattr(leaf, "groups", 1) == 2,
            "activation: not gelu": getattr(leaf, "activation", "gelu") != "gelu",
            "module that recomputes itself": getattr(leaf, "recompute", False),
            "normalization: RMSNorm": getattr(leaf, "normalization", "LayerNorm") == "RMSNorm",
        }
        yield from (name for name, holds in named.items() if holds)


def _of_regions(case: c.Case) -> Iterator[str]:
    found = c.regions(case)
    if len(found) > 1:
        yield "several regions"
    for region in found:
        yield "reentrant" if region.use_reentrant else "non-reentrant"
        yield f"function: {region.function}"
        if region.gain is not None:
            way = "keyword" if region.gain.by_keyword else "positional"
            yield f"gain: {way} {'tensor' if region.gain.as_tensor else 'float'}"
        if region.contexts is not None:
            yield f"context_fn forward: {region.contexts.forward}"
        leaves = c.leaves(case, region)
        named = {
            "region that returns a tuple": region.results == "tuple",
            "region of eval modules": not any(leaf.training for leaf in leaves),
            "region of frozen modules": all(leaf.frozen for leaf in leaves),
            "region without TE modules": all(type(leaf).__name__.startswith("Torch") for leaf in leaves),
        }
        yield from (name for name, holds in named.items() if holds)


def _of_graph(graph: c.Node) -> Iterator[str]:
    containers: dict[type[c.Node], str] = {c.Chain: "chain", c.Residual: "residual", c.Sum: "sum"}
    for node, above in with_parents(graph):
        if type(node) in containers:
            yield containers[type(node)]
        within = any(isinstance(parent, c.Region) for parent in above)
        if isinstance(node, c.Module) and not within:
            yield "module outside regions"
        if isinstance(node, c.GradMode) and within:
            yield f"grad mode inside region: {node.mode}"
        if isinstance(node, c.Region):
            yield from (f"grad mode around region: {n.mode}" for n in above if isinstance(n, c.GradMode))


def _of_autocasts(graph: c.Node) -> Iterator[str]:
    outermost = 0
    for node, above in with_parents(graph):
        enclosed = any(isinstance(parent, c.Autocast) and parent.enabled for parent in above)
        if isinstance(node, c.Region) and enclosed:
            yield "autocast around region"
        if not isinstance(node, c.Autocast):
            continue
        if not node.enabled:
            yield "autocast off inside"
        elif enclosed:
            yield "autocast nested"
        else:
            outermost += 1
            if any(isinstance(parent, c.Region) for parent in above):
                yield "autocast inside region"
    if outermost != 1:
        yield "several autocasts" if outermost else "no autocast"


def _of_recipe(recipe: c.Recipe) -> Iterator[str]:
    yield f"recipe: {type(recipe).__name__}"
    if not isinstance(recipe, c.HighPrecision):
        yield f"format: {recipe.format}"
    if isinstance(recipe, c.DelayedScaling):
        yield f"algorithm: {recipe.algorithm}"
        if recipe.history == 1:
            yield "history: 1"
        if recipe.margin:
            yield "margin: positive" if recipe.margin > 0 else "margin: negative"


def _of_schedule(case: c.Case) -> Iterator[str]:
    yield from _of_switches(case)
    for step in case.schedule:
        if isinstance(step, c.Evaluate):
            yield f"evaluation: {step.mode}"
        if isinstance(step, c.OptimizerStep):
            yield "optimizer step"
    forwards = [step.magnitude for step in case.schedule if isinstance(step, c.Forward)]
    backwards = [step.magnitude for step in case.schedule if isinstance(step, c.Backward)]
    if pending_at_most(case) > 1:
        yield "several forwards pending"
    if 1 <= len(forwards) <= 4:
        yield f"iterations: {len(forwards)}"
    yield from (f"forward magnitude: {pattern}" for pattern in _patterns(forwards))
    yield from (f"backward magnitude: {pattern}" for pattern in _patterns(backwards))


def _of_switches(case: c.Case) -> Iterator[str]:
    """Yield which switches of a mode are real ones: before a forward, and between it and its backward."""
    training = [leaf.training for leaf in c.modules(case)]
    pending = 0
    for step in case.schedule:
        if isinstance(step, c.Forward | c.Backward):
            pending += 1 if isinstance(step, c.Forward) else -1
        elif isinstance(step, c.SetMode) and training[step.module] != step.training:
            training[step.module] = step.training
            yield "mode flipped before backward" if pending else "mode flipped before forward"


def _patterns(magnitudes: list[float]) -> Iterator[str]:
    """Yield what a sequence of magnitudes does to a scale."""
    if 0.0 in magnitudes:
        yield "zeros"
    positive = sorted(size for size in magnitudes if size > 0)
    if positive and positive[0] <= _TINY:
        yield "tiny"
    if positive and positive[-1] >= _SPIKE * max([1.0, *positive[:-1]]):
        yield "spike"
    if len(magnitudes) > 1 and len(positive) == len(magnitudes):
        pairs = list(pairwise(magnitudes))
        if all(before < after for before, after in pairs):
            yield "growth"
        if all(before > after for before, after in pairs):
            yield "decay"


def _of_settings(case: c.Case) -> Iterator[str]:
    yield f"dtype: {case.dtype}"
    named = {
        "torch autocast": case.torch_autocast,
        "RNG tracker": case.rng_tracker,
        "quantized parameters": case.quantized_parameters,
        "input without gradient": not case.input_requires_grad,
    }
    yield from (name for name, holds in named.items() if holds)
