"""Features beyond the contract: they are told from what each forward of a case meets."""

from __future__ import annotations

import pytest

from harness import case as c
from harness.beyond import features_beyond

SEVERAL_RECIPES = "module used with several recipes"
OPENED_INSIDE = "autocast opened in a reentrant region"

USED_AGAIN_WITHOUT_FP8 = c.Chain(
    (c.Autocast(c.Region(c.Linear())), c.Autocast(c.Region(c.Reuse(0)), enabled=False))
)
ONE = (c.Forward(), c.Backward())


def _case(graph: c.Node, *steps: c.Step, recipe: c.Recipe) -> c.Case:
    return c.Case(graph=graph, schedule=steps, recipe=recipe)


@pytest.mark.parametrize(
    ("graph", "recipe", "steps", "expected"),
    [
        (USED_AGAIN_WITHOUT_FP8, c.DelayedScaling(), ONE, True),
        (USED_AGAIN_WITHOUT_FP8, c.HighPrecision(), ONE, False),
        (USED_AGAIN_WITHOUT_FP8, c.HighPrecision(), (c.SetRecipe(c.CurrentScaling()), *ONE), True),
        (USED_AGAIN_WITHOUT_FP8, c.HighPrecision(), (*ONE, c.SetRecipe(c.CurrentScaling())), False),
        (
            c.Chain((c.Region(c.Linear()), c.Autocast(c.Reuse(0), enabled=False))),
            c.DelayedScaling(),
            (c.OpenAutocast(), *ONE, c.CloseAutocast()),
            True,
        ),
        (
            c.Chain((c.Autocast(c.Linear()), c.Autocast(c.Reuse(0), recipe=c.CurrentScaling()))),
            c.DelayedScaling(),
            ONE,
            True,
        ),
    ],
    ids=["on and off", "never on", "switched on", "switched on too late", "in an open one", "of its own"],
)
def test_a_module_is_used_with_several_recipes_where_a_forward_meets_it_so(
    graph: c.Node, recipe: c.Recipe, steps: tuple[c.Step, ...], *, expected: bool
) -> None:
    assert (SEVERAL_RECIPES in features_beyond(_case(graph, *steps, recipe=recipe))) == expected


def test_an_autocast_is_opened_inside_where_that_around_it_is_off_by_then() -> None:
    inner = c.Autocast(c.Linear(), recipe=c.DelayedScaling())
    around = c.Autocast(c.Region(inner))
    assert OPENED_INSIDE not in features_beyond(_case(around, *ONE, recipe=c.DelayedScaling()))
    off = (*ONE, c.SetRecipe(c.HighPrecision()), *ONE)
    assert OPENED_INSIDE in features_beyond(_case(around, *off, recipe=c.DelayedScaling()))
