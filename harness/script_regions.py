"""Scripts: the regions of a case, what they hand to the checkpoint, and what calls them directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harness import case as c
from harness.graph_traits import TORCHS
from harness.script_graph import GraphWriter, Place, uses
from harness.script_text import call, indented

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTEXTS: Final[dict[str, str]] = {
    "null": "contextlib.nullcontext()",
    "no_grad": "torch.no_grad()",
    "enable_grad": "torch.enable_grad()",
}


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """What a script calls what checkpoints its regions.

    ``compares`` says that they are called directly too: the two are then parameters of a function.
    """

    checkpoint: str = "te.checkpoint"
    torch_checkpoint: str = "torch.utils.checkpoint.checkpoint"
    recompute: str = "True"
    compares: bool = False


class Regions:
    """Writes regions for a graph writer, and keeps the functions that they call."""

    def __init__(self, case: c.Case, root: Place, graph: GraphWriter, style: Style) -> None:
        self.functions: dict[int, list[str]] = {}
        """The lines that define each region's function, by the region's number; not all need one."""
        self._case = case
        self._graph = graph
        self._style = style
        self._leaves = c.originals(case)
        self._passed: set[str] = set()
        forwards = [step for step in case.schedule if isinstance(step, c.Forward)]
        self._always_told = bool(forwards) and all(step.first_microbatch is not None for step in forwards)
        all_regions = dict(_regions(root))
        self._failing = _failing(case, c.Forward) | _failing(case, c.Backward)
        # What raises in a backward is called directly only where runs are compared.
        self._interrupted = _failing(case, c.Backward) if style.compares else set[int]()
        self._apart = [_sums_apart(case, place, added) for place, added in all_regions.items()]
        built = [place.number for place in all_regions if self._named(place) is None]
        self._names = {
            number: "block" + (str(place + 1) if len(built) > 1 else "") for place, number in enumerate(built)
        }
        self._given_contexts = [bool(_contexts(place)) for place in all_regions]

    # --- Calls ---

    def expression(self, place: Place, x: str) -> str | None:
        """Return the call of a region; None where its result takes statements."""
        statements = _region(place).results == "tuple" or place.number in self._interrupted
        return None if statements else self._call(place, x)

    @property
    def interrupts(self) -> bool:
        """Whether something calls the function ``interrupt``, which raises while a step is to fail."""
        return bool(self._interrupted)

    def write(self, place: Place, x: str, to: str) -> list[str]:
        """Return the lines that call a region and join what it returns."""
        made = self._call(place, x)
        if _region(place).results == "tuple":
            joined = "scaled + factor * plain + 2 * detached"
            lines = [f"scaled, plain, detached, factor = {made}"]
            watched = ["scaled", "plain"]
        else:
            assigned = to.removesuffix(" = ")
            joined = assigned if assigned != to else self._graph.fresh()
            lines = [f"{joined} = {made}"]
            watched = [joined]
        if place.number in self._interrupted:
            # Directly, no recompute comes that could raise.
            lines.append(f"if {self._style.checkpoint} is direct and {watched[0]}.requires_grad:")
            lines += indented(f"{name}.register_hook(interrupt)" for name in watched)
        return lines if to in ("", f"{joined} = ") else [*lines, to + joined]

    def _call(self, place: Place, x: str) -> str:
        node = _region(place)
        function, extra = self._named(place) or (self._define(place), ())
        positional, keywords = [x], []
        if node.given == "by keyword too":
            keywords.append(f"also={x}")
        elif node.given != "once":
            positional.append(x if node.given == "twice" else f"[{x}]")
        if node.gain is not None:
            value = str(node.gain.value)
            value = f'torch.tensor({value}, device="cuda")' if node.gain.as_tensor else value
            if node.gain.by_keyword:
                keywords.append(f"gain={value}")
            else:
                positional.append(value)
        packs = "CheckpointImpl.REENTRANT" if node.use_reentrant and keywords else ""
        positional += [given for given in extra if "=" not in given]
        keywords += [given for given in extra if "=" in given]
        if keywords:
            self._passed.add("kwargs")
        options = self._options(node, place)
        if node.checkpointer == "wrapper":
            way = f"checkpoint_fn={self._style.checkpoint}"
            return call(call("checkpoint_wrapper", function, packs, way, *options), *positional, *keywords)
        torchs = node.checkpointer == "torch"
        checkpoint = self._style.torch_checkpoint if torchs else self._style.checkpoint
        return call(checkpoint, function, *positional, *options, *keywords)

    def _options(self, node: c.Region, place: Place) -> list[str]:
        options = []
        torchs = node.checkpointer == "torch"
        if not node.use_reentrant or torchs:
            self._passed.add("use_reentrant")
            options.append(f"use_reentrant={node.use_reentrant}")
        contexts = _contexts(place)
        if contexts and not torchs:
            self._passed.add("context_fn")
            options.append(f"context_fn=lambda: ({', '.join(contexts)})")
        if self._case.rng_tracker and not torchs:
            self._passed.add("get_rng_state_tracker")
            options.append("get_rng_state_tracker=lambda: tracker")
        return options

    # --- Functions ---

    def _named(self, place: Place) -> tuple[str, tuple[str, ...]] | None:
        """Return what a region hands over, and arguments with it, where no function need be written."""
        node = _region(place)
        (body,) = place.below
        if node.gain or node.given != "once" or node.results == "tuple" or place.number in self._failing:
            return None
        if isinstance(body.node, c.Chain) and node.function == "module":
            leaves = [self._graph.leaf(child) if _is_leaf(child) else None for child in body.below]
            names = [leaf[0] for leaf in leaves if leaf is not None and not leaf[1]]
            return (call("torch.nn.Sequential", *names), ()) if len(names) == len(leaves) else None
        leaf = self._graph.leaf(body) if _is_leaf(body) else None
        # PyTorch's reentrant checkpoint takes no keywords.
        if leaf is None or (node.checkpointer == "torch" and "=" in "".join(leaf[1])):
            return None
        name, extra = leaf
        if node.function == "method":
            return f"{name}.forward", extra
        return (f"lambda x: {call(name, 'x', *extra)}", ()) if node.function == "callable" else leaf

    def _define(self, place: Place) -> str:
        """Write the function of a region, and return what is handed over."""
        node = _region(place)
        name = self._names[place.number]
        of_torch = not self._wrapped_anew(place) and all(
            isinstance(leaf, TORCHS) for leaf in self._leaves_below(place)
        )
        parameters = ["x", *["also"] * (node.given != "once"), *["gain"] * (node.gain is not None)]
        if node.given == "by keyword too":
            # What comes by position comes first.
            parameters = ["x", *parameters[:0:-1]]
        fresh = self._graph.scope()
        body = indented(self._body(place))
        self._graph.leave(fresh)
        if node.function == "method":
            lines = [
                f"class {name.title()}:",
                *indented([f"def apply(self, {', '.join(parameters)}):", *body]),
            ]
            handed = f"{name.title()}().apply"
        elif node.function == "module" and of_torch:
            # te.checkpoint looks for TE's modules in a module, and takes a function to have some.
            header = f"class {name.title()}(torch.nn.Module):"
            lines = [header, *indented([f"def forward(self, {', '.join(parameters)}):", *body])]
            handed = f"{name.title()}()"
        else:
            lines = [f"def {name}({', '.join(parameters)}):", *body]
            handed = name
        # Those that stand in it come first.
        self.functions.setdefault(place.number, lines)
        return handed

    def _wrapped_anew(self, place: Place) -> bool:
        """Tell whether a run hands over a function of its own instead of a module (``harness.caller``)."""
        return place.number in self._failing or self._always_told

    def _body(self, place: Place) -> list[str]:
        node = _region(place)
        (body,) = place.below
        changed = (" * gain" if node.gain else "") + {"once": "", "in a list too": " + also[0]"}.get(
            node.given, " + also"
        )
        value = self._graph.operand(body, "x") if node.gain else self._graph.expression(body, "x")
        fails = place.number in self._failing
        if not fails and node.results == "tensor":
            if value is not None:
                return [f"return {value}{changed}"]
            if not changed:
                return self._graph.write(body, "x", "return ", spare=True)
        spare = node.given == "once"
        lines = (
            [f"out = {value}{changed}"]
            if value is not None
            else self._graph.write(body, "x", "out = ", spare=spare)
        )
        if value is None and changed:
            lines.append(f"out = out{changed}")
        if fails:
            late = place.number in self._interrupted
            lines += ["interrupt()"] if late else ["if failing:", "    raise InterruptedError"]
        result = "0.5 * out, out, out.detach(), 0.25" if node.results == "tuple" else "out"
        return [*lines, f"return {result}"]

    def _leaves_below(self, place: Place) -> Iterator[c.Leaf]:
        if _is_leaf(place):
            yield self._leaves[place.number]
        for below in place.below:
            yield from self._leaves_below(below)

    # --- The direct run ---

    def direct(self) -> list[str]:
        """Return the function that takes the checkpoint's place in the direct run."""
        switched = "context_fn" in self._passed and any(self._given_contexts)
        parameters = ["function", "*args"]
        if "use_reentrant" in self._passed:
            parameters.append("use_reentrant=True")
        if "context_fn" in self._passed:
            parameters.append("context_fn" if all(self._given_contexts) else "context_fn=noop_context_fn")
        if "get_rng_state_tracker" in self._passed:
            parameters.append("get_rng_state_tracker=None")
        kwargs = "kwargs" in self._passed
        called = f"return function(*args{', **kwargs' if kwargs else ''})"
        lines = [f"def direct({', '.join([*parameters, *['**kwargs'] * kwargs])}):"]
        if not switched and not any(self._apart):
            return [f"{lines[0]} {called}"]
        if any(self._apart):
            lines += indented(self._viewed())
        if not switched:
            return [*lines, *indented([called])]
        reentrant = "use_reentrant and " if "use_reentrant" in self._passed else ""
        return [
            *lines,
            *indented([
                "forward_context, recompute_context = context_fn()",
                f"with recompute_context if {reentrant}torch.is_grad_enabled() else forward_context:",
                *indented([called]),
            ]),
        ]  # fmt: skip

    def _viewed(self) -> list[str]:
        lines = [
            "# A reentrant checkpoint sums what its function adds to the gradient of an input first.",
            "args = [arg.view_as(arg) if torch.is_tensor(arg) else arg for arg in args]",
        ]
        conditions = ["use_reentrant"] if "use_reentrant" in self._passed else []
        if any(isinstance(node, c.GradMode) for node in c.walk(self._case.graph)) or any(
            self._given_contexts
        ):
            conditions.append("torch.is_grad_enabled()")
        return [f"if {' and '.join(conditions)}:", *indented(lines)] if conditions else lines


def _region(place: Place) -> c.Region:
    assert isinstance(place.node, c.Region)  # noqa: S101 - who calls has looked
    return place.node


def _is_leaf(place: Place) -> bool:
    return isinstance(place.node, c.Module | c.Reuse | c.Twin)


def _regions(place: Place, *, added: bool = False) -> Iterator[tuple[Place, bool]]:
    """Yield the regions with whether their results are added to something."""
    if isinstance(place.node, c.Region):
        yield place, added
    for below in place.below:
        yield from _regions(below, added=added or isinstance(place.node, c.Residual | c.Sum | c.Discard))


def _sums_apart(case: c.Case, place: Place, added: bool) -> bool:
    """Tell whether the order in which gradients are summed differs without care in the direct run."""
    node = _region(place)
    inside, more = uses(place.below[0]), node.given != "once"
    elsewhere = added or case.torch_autocast
    return node.use_reentrant and ((inside + more > 1 and elsewhere) or (inside > 1 and more))


def _failing(case: c.Case, kind: type[c.Forward] | type[c.Backward]) -> set[int]:
    return {step.fails for step in case.schedule if isinstance(step, kind) and step.fails is not None}


def _contexts(place: Place) -> list[str]:
    contexts = _region(place).contexts
    return [] if contexts is None else [_CONTEXTS[contexts.forward], _CONTEXTS[contexts.recompute]]
