"""Uneven choices: Hypothesis offers only even ones, and most cases should be mostly plain.

A case shrinks towards fewer draws first, and towards smaller ones second. So whatever is plainer must not
cost more draws than what it stands for.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

T = TypeVar("T")


def weighted(*choices: tuple[int, T]) -> st.SearchStrategy[T]:
    """Draw one of the values, each as often as the number before it says.

    Shrinks towards the first value. It costs one draw, whatever the weights.
    """
    if not choices or any(weight < 1 for weight, _ in choices):
        raise InvalidArgument(f"weighted() needs at least one choice, and weights of at least 1: {choices!r}")
    return st.sampled_from([value for weight, value in choices for _ in range(weight)])


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
