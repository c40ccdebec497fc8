"""Scripts: what a run keeps, to be compared with the other's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from harness import case as c
from harness.trace import Quantity

if TYPE_CHECKING:
    from harness.script_model import ModelWriter

PARAMETERS: Final = "*gradients"
"""The entry of all parameters' gradients, by the name of the list that they are in."""
CPU_STATE: Final = "torch.get_rng_state()"
"""The state of the generator from which tensors are drawn, unless they are drawn apart."""
_RETURNING, _COLLECTING = "return {}", "results += {}"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a script keeps to compare: these quantities, from this iteration on.

    Where some parameters may have no gradient, ``lacking`` says what becomes of those: they count as zero, or
    are left out. ``random`` is the state of a random number generator that is kept before the first backward.
    """

    quantities: frozenset[Quantity] = frozenset()
    since: int = 0
    lacking: Literal["none", "zero", "out"] = "none"
    random: str = ""

    def wants(self, quantity: Quantity, iteration: int) -> bool:
        """Tell whether a quantity of an iteration is kept."""
        return quantity in self.quantities and iteration >= self.since


class Results:
    """Writes what is kept: entries of a list, each a name and a tensor.

    Where all of them can wait until the end they are returned there; else they are collected.
    """

    def __init__(self, kept: Kept, model: ModelWriter) -> None:
        self.kept = kept
        self.collected = False
        self._model = model
        self._entries: list[str] = []
        self._calls: list[str] = []

    def add(self, name: str, expression: str = "") -> None:
        """Keep a tensor that has this name, and is what it says unless it is given."""
        entry = f'("{name}", {expression or name})'
        if entry not in self._entries:
            self._entries.append(entry)

    def add_all(self, entry: str) -> None:
        """Keep what an expression unpacks."""
        if entry not in self._entries:
            self._entries.append(entry)

    def add_call(self, call: str, iteration: int, lines: list[str], *, last: bool) -> None:
        """Write a call that returns entries; ``last`` says that only such calls follow."""
        if not self.kept.quantities or iteration < self.kept.since:
            lines.append(call)
        elif last and not self._entries and not self.collected:
            self._calls.append(call)
        else:
            self.flush(lines)
            self.collected = True
            lines.append(_COLLECTING.format(call))

    def flush(self, lines: list[str]) -> None:
        """Collect now what was kept so far, of which some is about to change."""
        if self._entries:
            self.collected = True
            lines += self._written(_COLLECTING)

    def finish(self, lines: list[str]) -> None:
        """Return all that was kept."""
        if not self.kept.quantities:
            return
        if self._calls:
            lines.append(f"return {' + '.join(self._calls)}")
        elif self.collected:
            self.flush(lines)
            lines.append("return results")
        else:
            lines += self._written(_RETURNING)

    def _written(self, form: str) -> list[str]:
        entries = [entry for entry in self._entries if entry != PARAMETERS]
        of_parameters = PARAMETERS in self._entries
        self._entries = []
        if not of_parameters:
            return [form.format(f"[{', '.join(entries)}]")]
        some = " if p.grad is not None" if self.kept.lacking == "out" else ""
        gradient = (
            "p.grad" if self.kept.lacking != "zero" else "torch.zeros_like(p) if p.grad is None else p.grad"
        )
        named = f"for name, p in {self._model.name}.named_parameters(){some}"
        gradients = f'[(f"{{name}}.grad", {gradient}) {named}]'
        if not entries:
            return [form.format(gradients)]
        return [f"gradients = {gradients}", form.format(f"[{', '.join([*entries, PARAMETERS])}]")]


def may_lack_gradients(case: c.Case) -> bool:
    """Tell whether there may be parameters, or an input, without a gradient."""
    return any(
        (isinstance(node, c.Module) and node.frozen)
        or isinstance(node, c.GradMode | c.Discard)
        or (isinstance(node, c.Region) and node.contexts is not None)
        for node in c.walk(case.graph)
    )
