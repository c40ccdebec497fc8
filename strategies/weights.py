"""Uneven choices: Hypothesis offers only even ones, and most cases should be mostly plain.

A case shrinks towards fewer draws first, and towards smaller ones second. So whatever is plainer must not
cost more draws than what it stands for.
"""

from __future__ import annotations

from typing import Final, TypeVar

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

T = TypeVar("T")

PLACES: Final = 100
"""The largest number of places to choose from.

Hypothesis mixes numbers that it finds in loaded modules into what it draws, but none up to 100. With more
places, a campaign's cases would follow from its seed and from what else happens to be imported.
"""


def weighted(*choices: tuple[int, T]) -> st.SearchStrategy[T]:
    """Draw one of the values, about as often as the number before it says.

    Shrinks towards the first value. It costs one draw, whatever the weights.
    """
    if not 0 < len(choices) <= PLACES or any(weight < 1 for weight, _ in choices):
        raise InvalidArgument(
            f"weighted() needs 1 to {PLACES} choices, and weights of at least 1: {choices!r}"
        )
    return st.sampled_from(_spread(choices))


def _spread(choices: tuple[tuple[int, T], ...]) -> list[T]:
    """Repeat each value by its weight, scaled down where that would take too many places."""
    scale = float(sum(weight for weight, _ in choices))
    while True:
        places = [max(1, round(weight * PLACES / scale)) for weight, _ in choices]
        if scale <= PLACES:
            places = [weight for weight, _ in choices]
        if sum(places) <= PLACES:
            return [value for count, (_, value) in zip(places, choices, strict=True) for _ in range(count)]
        scale *= 1.05


@st.composite
def _rarely(draw: st.DrawFn, gate: st.SearchStrategy[bool], exotic: st.SearchStrategy[T], plain: T) -> T:
    return draw(exotic) if draw(gate) else plain


def rarely(percent: int, exotic: st.SearchStrategy[T], *, otherwise: T) -> st.SearchStrategy[T]:
    """Draw from ``exotic`` in this percentage of draws, and else return the plain value.

    Shrinks to the plain value.
    """
    if not 0 < percent < 100:
        raise InvalidArgument(f"rarely() needs a percentage between 1 and 99, got {percent!r}")
    return _rarely(weighted((100 - percent, False), (percent, True)), exotic, otherwise)
