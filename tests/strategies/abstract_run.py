"""An abstract run of a case: where gradients are on and what needs one, by the nodes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from harness import case as c

TE_KINDS: Final = (
    c.Linear, c.LayerNormLinear, c.LayerNormMLP, c.GroupedLinear, c.LayerNorm, c.RMSNorm,
    c.MultiheadAttention, c.TransformerLayer,
)  # fmt: skip
WITHOUT_PARAMETERS: Final = (c.TorchGELU, c.TorchDropout)
ENABLING: Final = ("enable_grad", "set_grad_enabled_true")


class State(NamedTuple):
    """What holds where a node is entered."""

    gradients: bool
    inference: bool = False
    fp8: bool = False

    def under(self, mode: str) -> State:
        if mode == "null":
            return self
        return self._replace(gradients=mode in ENABLING, inference=self.inference or mode == "inference_mode")


@dataclass(frozen=True)
class Visit:
    """A node as the abstract run met it."""

    node: c.Node
    above: tuple[c.Node, ...]
    state: State
    given: bool
    result: bool

    @property
    def region(self) -> c.Region | None:
        return next((node for node in self.above if isinstance(node, c.Region)), None)


def run(case: c.Case, state: State | None = None) -> list[Visit]:
    """Walk a graph as a forward would; note who is given, and who returns, a tensor that needs a gradient."""
    visits: list[Visit] = []

    def enter(node: c.Node, state: State, given: bool, above: tuple[c.Node, ...]) -> bool:
        inner, below = state, (*above, node)
        if isinstance(node, c.GradMode):
            inner = state.under(node.mode)
        elif isinstance(node, c.Autocast):
            inner = state._replace(fp8=node.enabled)
        elif isinstance(node, c.Region) and not state.gradients and node.contexts is not None:
            inner = state.under(node.contexts.forward)
        if isinstance(node, c.Module):
            own = not node.frozen and not isinstance(node, WITHOUT_PARAMETERS)
            result = state.gradients and not state.inference and (given or own)
        elif isinstance(node, c.Chain):
            result = given
            for child in node.nodes:
                result = enter(child, inner, result, below)
        else:
            results = [enter(child, inner, given, below) for child in c.children(node)]
            result = any(results)
        if isinstance(node, c.Region):
            result = result and _passes_on(node, state, inner)
        if isinstance(node, c.Residual):
            result = state.gradients and (result or given)
        visits.append(Visit(node, above, state, given, result and not inner.inference))
        return visits[-1].result

    enter(case.graph, state or State(gradients=True), case.input_requires_grad, ())
    return visits


def switches_gradients_on(region: c.Region) -> bool:
    """Tell whether a region's own context, or a grad mode in its body, does."""
    by_context = region.contexts is not None and region.contexts.forward in ENABLING
    return by_context or any(isinstance(n, c.GradMode) and n.mode in ENABLING for n in c.walk(region))


def with_pending(case: c.Case) -> Iterator[tuple[c.Step, int]]:
    """Yield each step with how many forwards wait for their backwards once it is done."""
    pending = 0
    for step in case.schedule:
        pending += isinstance(step, c.Forward) - isinstance(step, c.Backward)
        yield step, pending


def _passes_on(region: c.Region, outside: State, inside: State) -> bool:
    """Tell whether what a body returns keeps its gradient: a gain multiplies it, a tuple is joined."""
    return (region.gain is None or inside.gradients) and (region.results == "tensor" or outside.gradients)


def recognised(region: c.Region) -> bool:
    return region.function != "module" or any(isinstance(node, TE_KINDS) for node in c.walk(region))


def anchors(node: c.Node) -> bool:
    """Tell whether something here saves tensors for a backward, outside everything that cuts gradients."""
    if isinstance(node, c.GradMode) and node.mode not in ENABLING:
        return False
    if isinstance(node, c.Module):
        return not isinstance(node, c.TorchDropout)
    return any(anchors(child) for child in c.children(node))
