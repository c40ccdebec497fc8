"""Scripts: a case's graph as Python statements on a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from harness import case as c
from harness.script_modules import ATTENDING, recipe
from harness.script_text import call, indented

if TYPE_CHECKING:
    from collections.abc import Sequence

_GRAD_MODES: Final[dict[str, str]] = {
    "no_grad": "torch.no_grad()",
    "enable_grad": "torch.enable_grad()",
    "set_grad_enabled_false": "torch.set_grad_enabled(False)",
    "set_grad_enabled_true": "torch.set_grad_enabled(True)",
    "inference_mode": "torch.inference_mode()",
}
_MICROBATCHED: Final = (
    c.Linear, c.LayerNormLinear, c.LayerNormMLP, c.GroupedLinear, c.MultiheadAttention, c.TransformerLayer,
)  # fmt: skip
_LETTERS: Final = "yzuvw"
_LONGEST_EXPRESSION: Final = 64


@dataclass(frozen=True, eq=False)
class Place:
    """A node where it stands: the number of its module or region, and the places below.

    Twins are numbered after the modules. One node of a case may stand in several places.
    """

    node: c.Node
    number: int
    below: tuple[Place, ...]


def places(graph: c.Node) -> Place:
    """Return the place of a graph's root."""
    counts = {c.Module: 0, c.Region: 0, c.Twin: sum(isinstance(node, c.Module) for node in c.walk(graph))}

    def counted(kind: type[c.Module] | type[c.Region] | type[c.Twin]) -> int:
        counts[kind] += 1
        return counts[kind] - 1

    def placed(node: c.Node) -> Place:
        number = -1
        if isinstance(node, c.Module):
            number = counted(c.Module)
        elif isinstance(node, c.Region):
            number = counted(c.Region)
        elif isinstance(node, c.Twin):
            number = counted(c.Twin)
        elif isinstance(node, c.Reuse):
            number = node.module
        return Place(node, number, tuple(placed(child) for child in c.children(node)))

    return placed(graph)


def uses(place: Place) -> int:
    """Return how many terms, at least, make up the gradient of a node's input."""
    node = place.node
    if isinstance(node, c.Sum):
        return sum(uses(branch) for branch in place.below)
    if isinstance(node, c.Residual):
        return 1 if node.in_place else 1 + uses(place.below[0])
    if isinstance(node, c.Discard):
        return 1 + uses(place.below[0])
    if isinstance(node, c.Region):
        return 1 if node.given == "once" else 2
    if isinstance(node, c.Chain | c.Autocast | c.GradMode):
        return uses(place.below[0]) if place.below else 1
    return 2 if isinstance(node, c.TransformerLayer) else 1


class RegionWriter(Protocol):
    """What writes regions."""

    def expression(self, place: Place, x: str) -> str | None:
        """Return a region's result as an expression; None where it takes statements."""

    def write(self, place: Place, x: str, to: str) -> list[str]:
        """Return the lines of a region whose result takes statements."""


class GraphWriter:
    """Writes nodes as expressions where they fit into one, else as statements.

    ``recompute`` is an expression: whether modules that recompute themselves do so.
    """

    def __init__(self, case: c.Case, names: Sequence[str], recompute: str) -> None:
        self.regions: RegionWriter
        self._case = case
        self._names = names
        self._recompute = recompute
        self._leaves = c.originals(case)
        self._flat = not any(isinstance(leaf, ATTENDING) for leaf in self._leaves)
        self._microbatched = any(
            isinstance(step, c.Forward) and step.first_microbatch is not None for step in case.schedule
        )
        self._fresh = 0

    @property
    def shape(self) -> str:
        """The shape of the input, without the brackets: attention takes a batch of sequences."""
        rows, width = self._case.rows, self._case.width
        return f"{rows}, {width}" if self._flat else f"{rows // 2}, 2, {width}"

    def leaf(self, place: Place) -> tuple[str, tuple[str, ...]] | None:
        """Return the name of a module and what it is given beside its input; None where that is not all."""
        leaf = self._leaves[place.number]
        if isinstance(leaf, c.GroupedLinear) and not self._flat:
            return None
        return self._names[place.number], tuple(self._given(leaf))

    def _given(self, leaf: c.Leaf) -> list[str]:
        given = []
        if isinstance(leaf, c.GroupedLinear):
            given.append(str([self._case.rows // leaf.groups] * leaf.groups))
        if isinstance(leaf, c.TransformerLayer) and leaf.recompute:
            given.append(f"checkpoint_core_attention={self._recompute}")
        if isinstance(leaf, _MICROBATCHED) and self._microbatched:
            given.append("is_first_microbatch=first")
        return given

    def scope(self) -> int:
        """Begin a function, in which names are free again; returns what ``leave`` takes."""
        fresh, self._fresh = self._fresh, 0
        return fresh

    def leave(self, fresh: int) -> None:
        """End a function."""
        self._fresh = fresh

    # --- Expressions ---

    def expression(self, place: Place, x: str) -> str | None:
        """Return what a node makes of ``x`` as an expression; None where it takes statements."""
        node = place.node
        if not x.isidentifier() and self._reads(place) > 1:
            return None
        if isinstance(node, c.Module | c.Reuse | c.Twin):
            return self._leaf_call(place, x)
        if isinstance(node, c.Region):
            return self.regions.expression(place, x)
        found = None
        if isinstance(node, c.Chain):
            found = self._chained(place, x)
        elif isinstance(node, c.Residual) and not node.in_place:
            body = self.operand(place.below[0], x)
            found = body and f"{x} + {body}"
        elif isinstance(node, c.Sum):
            branches = [self.operand(branch, x) for branch in place.below]
            found = None if None in branches else " + ".join(map(str, branches))
        return found if found and len(found) <= _LONGEST_EXPRESSION else None

    def operand(self, place: Place, x: str) -> str | None:
        """Return an expression that can be a term or a factor."""
        found = self.expression(place, x)
        return f"({found})" if found and _is_sum(place) else found

    def _leaf_call(self, place: Place, x: str) -> str:
        name, given = self._names[place.number], self._given(self._leaves[place.number])
        if self.leaf(place) is None:
            return f"{call(name, f'{x}.flatten(0, 1)', *given)}.view_as({x})"
        return call(name, x, *given)

    def _chained(self, place: Place, x: str) -> str | None:
        value: str | None = x
        for child in place.below:
            value = value and self.expression(child, value)
        return value

    def _reads(self, place: Place) -> int:
        """Return how often the expression of a node has its input in it."""
        node = place.node
        if isinstance(node, c.Chain):
            return self._reads(place.below[0]) if place.below else 1
        if isinstance(node, c.Module | c.Reuse | c.Twin):
            return 2 if self.leaf(place) is None else 1
        return uses(place) if isinstance(node, c.Region | c.Sum) else 2

    # --- Statements ---

    def write(self, place: Place, x: str, to: str, *, spare: bool = False) -> list[str]:
        """Return the lines that compute a node of the variable ``x``; the last begins with ``to``.

        ``to`` is "return ", "name = ", or "" where the result is dropped. ``spare`` says that ``x`` may be
        overwritten.
        """
        expression = self.expression(place, x)
        if expression is not None:
            return [to + expression] if to or not expression.isidentifier() else []
        node = place.node
        if isinstance(node, c.Region):
            return self.regions.write(place, x, to)
        if isinstance(node, c.Chain):
            return self._write_chain(place, x, to, spare=spare)
        if isinstance(node, c.Residual | c.Sum):
            return self._write_sum(place, x, to)
        (body,) = place.below
        if isinstance(node, c.Autocast):
            return [f"with {self.autocast(node)}:", *indented(self.write(body, x, to, spare=spare))]
        if isinstance(node, c.GradMode):
            return self._write_grad_mode(node, body, x, to, spare=spare)
        return [*self.write(body, x, ""), *([to + x] if to else [])]

    def autocast(self, node: c.Autocast | None = None) -> str:
        """Return the autocast of a node, or one that a schedule opens."""
        if node is not None and not node.enabled:
            return "te.autocast(enabled=False)"
        if node is not None and node.recipe is not None:
            return f"te.autocast(recipe={recipe(node.recipe)})".replace("recipe=None", "enabled=False")
        steps = self._case.schedule
        recipes = [self._case.recipe, *(step.recipe for step in steps if isinstance(step, c.SetRecipe))]
        off = [isinstance(used, c.HighPrecision) for used in recipes]
        if all(off):
            return "te.autocast(enabled=False)"
        return f"te.autocast({'enabled=recipe is not None, ' if any(off) else ''}recipe=recipe)"

    def _write_chain(self, place: Place, x: str, to: str, *, spare: bool) -> list[str]:
        lines: list[str] = []
        variable, value = x, x
        mine = spare

        def stored(expression: str) -> None:
            nonlocal variable, value, mine
            if expression != variable:
                variable = variable if mine else self.fresh()
                lines.append(f"{variable} = {expression}")
                mine = True
            value = variable

        for number, child in enumerate(place.below):
            last = number + 1 == len(place.below)
            longer = self.expression(child, value)
            if longer is not None and (value == variable or len(longer) <= _LONGEST_EXPRESSION):
                value = longer
                continue
            stored(value)
            shorter = self.expression(child, value)
            if shorter is not None:
                value = shorter
            elif isinstance(child.node, c.Discard):
                lines += self.write(child.below[0], value, "")
            elif last:
                return lines + self.write(child, value, to, spare=mine)
            else:
                target = variable if mine else self.fresh()
                lines += self.write(child, value, f"{target} = ", spare=mine)
                variable, value, mine = target, target, True
        return [*lines, to + value] if to or value != variable else lines

    def _write_sum(self, place: Place, x: str, to: str) -> list[str]:
        node = place.node
        lines: list[str] = []
        if isinstance(node, c.Residual) and node.in_place:
            changed = self.fresh()
            lines.append(f"{changed} = {x}.clone()")
            (term,) = self._terms(place, changed, lines)
            return [*lines, f"{to}{changed}.add_({term})"]
        terms = self._terms(place, x, lines)
        first = [x] if isinstance(node, c.Residual) else []
        return [*lines, to + " + ".join([*first, *terms])]

    def _terms(self, place: Place, x: str, lines: list[str]) -> list[str]:
        """Return an expression for each branch, in whose order they run; adds the lines that they need."""
        expressions = [self.operand(branch, x) for branch in place.below]
        if len(expressions) == 1 and expressions[0] is not None:
            return [expressions[0]]
        terms = []
        for branch in place.below:
            terms.append(self.fresh())
            lines += self.write(branch, x, f"{terms[-1]} = ")
        return terms

    def _write_grad_mode(self, node: c.GradMode, body: Place, x: str, to: str, *, spare: bool) -> list[str]:
        head = f"with {_GRAD_MODES[node.mode]}:"
        if node.mode != "inference_mode" or not to:
            return [head, *indented(self.write(body, x, to, spare=spare))]
        # Autograd refuses to save inference tensors.
        found = self.fresh()
        return [head, *indented(self.write(body, x, f"{found} = ")), f"{to}{found}.clone()"]

    def fresh(self) -> str:
        """Return a name that is not in use in this function."""
        self._fresh += 1
        round_, letter = divmod(self._fresh - 1, len(_LETTERS))
        return _LETTERS[letter] + (str(round_ + 1) if round_ else "")


def _is_sum(place: Place) -> bool:
    if isinstance(place.node, c.Chain):
        return bool(place.below) and _is_sum(place.below[-1])
    return isinstance(place.node, c.Residual | c.Sum)
