"""Recipes: how Transformer Engine scales what it casts to FP8."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from harness import case as c
from strategies.weights import rarely, weighted

_DELAYED: Final = rarely(
    70,
    st.builds(
        c.DelayedScaling,
        format=st.sampled_from(["HYBRID", "E4M3"]),
        history=st.sampled_from([4, 1, 2, 3, 16]),
        algorithm=st.sampled_from(["max", "most_recent"]),
        margin=weighted((4, 0), (1, 1), (1, 2), (2, -1)),
    ),
    otherwise=c.DelayedScaling(),
)


_OTHERS: Final[st.SearchStrategy[c.Recipe]] = weighted(
    (4, c.CurrentScaling()), (3, c.CurrentScaling(format="E4M3")), (3, c.HighPrecision())
)


@st.composite
def _recipe(draw: st.DrawFn, is_delayed: st.SearchStrategy[bool]) -> c.Recipe:
    return draw(_DELAYED) if draw(is_delayed) else draw(_OTHERS)


_RECIPES: Final = _recipe(weighted((7, True), (3, False)))


def delayed_scaling() -> st.SearchStrategy[c.DelayedScaling]:
    """Draw a delayed-scaling recipe: format, length of the history, algorithm and margin.

    Shrinks towards the default recipe. The histories are those at which something changes: one entry, a
    few (which a run of four iterations fills and rolls), and more than any run here fills.
    """
    return _DELAYED


def recipes() -> st.SearchStrategy[c.Recipe]:
    """Draw a recipe, seven out of ten times delayed scaling, since only that one pushes snapshots.

    Shrinks towards the default ``DelayedScaling``.
    """
    return _RECIPES
