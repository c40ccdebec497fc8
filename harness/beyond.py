"""What of a case lies beyond the contract: the features that a frontier case switches on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness import graph_traits, schedule_traits, use_traits

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import case as c

BEYOND: Final[dict[str, Callable[[c.Case], bool]]] = {
    **graph_traits.TRAITS,
    **use_traits.TRAITS,
    **schedule_traits.TRAITS,
}
"""The features beyond the contract, each with what tells whether a case has it."""


def features_beyond(case: c.Case) -> frozenset[str]:
    """Return the names, out of ``BEYOND``, of what a case does that no case of the contract does."""
    return frozenset(name for name, has in BEYOND.items() if has(case))
