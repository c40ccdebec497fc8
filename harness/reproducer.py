"""Writes a case as a script of torch and Transformer Engine alone, as a person would for a bug report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harness import case as c
from harness import script_checks
from harness.errors import InvalidInput
from harness.script_graph import GraphWriter, places
from harness.script_imports import head
from harness.script_model import ModelWriter
from harness.script_modules import HOST_DROPOUT, environment, recipe
from harness.script_regions import Regions, Style
from harness.script_steps import StepsWriter
from harness.script_text import comment, folded, indented
from harness.sentence import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.corpus import Seen
    from harness.script_checks import Check

MOST_LINES: Final = 40
"""Of a script that is read in a report."""


def script(case: c.Case, seen: Seen) -> str:
    """Return a script that shows what was seen of a case: it ends with 1 where that shows, else with 0.

    Raises InvalidInput where what was seen needs more than torch and Transformer Engine to be shown.
    """
    checks = script_checks.choose(case, seen)
    if not checks:
        kinds = ", ".join(sorted({violation.oracle for violation in seen.violations}))
        raise InvalidInput(f"what was seen ({kinds}) shows only to the harness: replay the case instead.")
    scripts = [_written(_up_to_error(case, check, seen), check) for check in checks]
    # What is less telling is told where only that is short enough to be read.
    lines = next((script for script in scripts if len(script) <= MOST_LINES), scripts[0])
    return "\n".join(lines) + "\n"


def _written(case: c.Case, check: Check) -> list[str]:
    body = _Script(_up_to(case, check.iteration), check).lines()
    gap = [""] if body[0].startswith(("def ", "class ")) else []
    told = describe(case, recipe=False)
    rest = folded(["", *head(environment(case), body), *gap, *body])
    if len(comment(told)) + len(rest) > MOST_LINES:
        # The steps can be read below.
        told = told.partition(";")[0].removesuffix(".") + "."
    return [*comment(told), *rest]


def _up_to_error(case: c.Case, check: Check, seen: Seen) -> c.Case:
    """Return a case up to the step in which a run ended, unless that is what is checked."""
    steps = [error.step for error in (seen.direct_error, seen.checkpointed_error) if error is not None]
    if check.errors or not steps:
        return case
    return msgspec.structs.replace(case, schedule=case.schedule[: min(steps)])


def _up_to(case: c.Case, iteration: int | None) -> c.Case:
    """Return a case without the steps that come after the last one of an iteration."""
    if iteration is None:
        return case
    last, begun, pending = 0, 0, list[int]()
    for at, step in enumerate(case.schedule):
        if isinstance(step, c.Forward | c.Evaluate):
            begun += 1
            going = [begun - 1]
            if isinstance(step, c.Forward) and step.fails is None:
                pending.append(begun - 1)
        elif isinstance(step, c.Backward | c.Abandon):
            losses = step.losses if isinstance(step, c.Backward) else 1
            going = pending[step.which : step.which + losses]
            if isinstance(step, c.Abandon) or not step.retain:
                del pending[step.which : step.which + losses]
        else:
            continue
        if iteration in going[:1]:
            last = at
    return msgspec.structs.replace(case, schedule=case.schedule[: last + 1])


class _Script:
    """The parts of one script."""

    def __init__(self, case: c.Case, check: Check) -> None:
        self._case = case
        self._check = check
        self._style, self._parameters, self._arguments = _style(case, check)
        self._model = ModelWriter(case)
        root = places(case.graph)
        graph = GraphWriter(case, self._model.names, self._style.recompute)
        self._regions = graph.regions = Regions(case, root, graph, self._style)
        self._steps = StepsWriter(case, self._model, root, graph, self._regions, check.kept)

    def lines(self) -> list[str]:
        """Return all but the docstring and the imports."""
        blocks, steps = self._steps.write()
        if self._check.returned:
            returned = self._check.returned
            steps.append(returned.replace("{model}", self._model.name) if "{model}" in returned else returned)
        given = dict(zip(("direct", "checkpointed"), map(", ".join, self._arguments), strict=True))
        report = [line.format(**given) for line in self._check.report]
        text = "\n".join(line for block in (*blocks, steps) for line in block)
        of_recipe = self._recipe(text)
        classes = self._classes()
        if not self._check.compares:
            return _apart([[*of_recipe], *classes, self._made(), *blocks, [*steps, "", *report]], 2)
        changes = any(isinstance(step, c.SetRecipe) for step in self._case.schedule)
        made = self._made(of_recipe if changes else [])
        run = [f"def run({', '.join(self._parameters)}):", *indented(_apart([made, *blocks, steps], 1))]
        return _apart([[] if changes else of_recipe, *classes, self._direct(), run, report], 2)

    def _made(self, of_recipe: Sequence[str] = ()) -> list[str]:
        """Return the lines that make the modules, and what the steps share."""
        seed = self._case.seed
        lines = [f"torch.manual_seed({seed})", *of_recipe]
        lines += [f"generator = torch.Generator().manual_seed({seed})"] * self._steps.draws_apart
        lines += self._model.made(self._style.recompute)
        collects, fails = self._steps.results.collected, self._steps.outline.fails
        lines += ["results = []"] * collects + ["failing = False"] * fails
        return lines

    def _recipe(self, text: str) -> list[str]:
        used = "recipe=recipe" in text or self._case.quantized_parameters
        return [f"recipe = {recipe(self._case.recipe)}"] if used else []

    def _classes(self) -> list[list[str]]:
        hosted = any(isinstance(leaf, c.TorchDropout) and leaf.on_cpu for leaf in c.modules(self._case))
        return [HOST_DROPOUT] if hosted else []

    def _direct(self) -> list[str]:
        return self._regions.direct() if "direct" in self._arguments[0] else []


def _apart(parts: Sequence[list[str]], blank: int) -> list[str]:
    """Join parts with so many blank lines between those that define something and their neighbours."""
    found: list[str] = []
    before = False
    for part in parts:
        defines = bool(part) and part[0].startswith(("def ", "class "))
        if found and part:
            found += [""] * (blank if defines or before else blank - 1)
        found += part
        before = defines if part else before
    return found


def _style(case: c.Case, check: Check) -> tuple[Style, list[str], tuple[list[str], list[str]]]:
    """Return how regions are called, and the parameters of ``run`` with what they are in either run."""
    if not check.compares:
        return Style(), [], ([], [])
    checkpointers = [region.checkpointer for region in c.regions(case)]
    if not checkpointers:
        return Style(recompute="recompute", compares=True), ["recompute"], (["False"], ["True"])
    ways = []
    if set(checkpointers) - {"torch"}:
        ways.append(("checkpoint", "te.checkpoint"))
    if "torch" in checkpointers:
        ways.append(("torch_checkpoint" if ways else "checkpoint", "torch.utils.checkpoint.checkpoint"))
    style = Style(
        checkpoint="checkpoint",
        torch_checkpoint=ways[-1][0],
        recompute="checkpoint is not direct",
        compares=True,
    )
    return style, [name for name, _ in ways], (["direct"] * len(ways), [given for _, given in ways])
