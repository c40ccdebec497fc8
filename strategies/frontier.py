"""The frontier: cases of the contract, each taken beyond it by a few features.

A case switches on few features at a time, so that one known fault does not hide another. Each feature is a
twist: it takes any case, and returns one that is valid and has the feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from hypothesis import strategies as st

from harness import case as c
from strategies import graph_twists as graph
from strategies import schedule_twists as schedule
from strategies.contract import contract
from strategies.frozen import thawed

if TYPE_CHECKING:
    from collections.abc import Callable

    Twist = Callable[[c.Case], st.SearchStrategy[c.Case]]

TWISTS: Final[tuple[Twist, ...]] = (
    graph.nested, graph.with_operation, graph.with_recomputing, graph.with_recomputed_attention,
    graph.opened_inside, graph.without_gradient, graph.saving_nothing, graph.with_result_dropped,
    graph.changed_in_place, graph.with_recipe_of_its_own, graph.under_another_checkpoint, graph.given_more,
    graph.without_te_modules, graph.evaluated_with_gradients, graph.tracked_dropout,
    graph.recomputing_under_torch_autocast, graph.reused,
    schedule.abandoned, schedule.out_of_order, schedule.joined, schedule.retained,
    schedule.evaluated_amid, schedule.in_one_autocast, schedule.with_recipe_changed,
    schedule.with_state_loaded, schedule.with_extra_state_loaded_amid, schedule.deep_copied,
    schedule.raising, schedule.in_microbatches, graph.inferred_first, schedule.by_grad,
)  # fmt: skip
"""What takes a case beyond the contract, in the order in which they are applied: those that number modules or
regions come after those that add some."""


@st.composite
def _frontier(draw: st.DrawFn) -> c.Case:
    case = draw(contract())
    numbers = draw(st.lists(st.integers(0, len(TWISTS) - 1), min_size=1, max_size=2, unique=True))
    for number in sorted(numbers):
        case = draw(TWISTS[number](case))
    return msgspec.structs.replace(case, graph=thawed(case.graph))


_FRONTIER: Final = _frontier()


def frontier() -> st.SearchStrategy[c.Case]:
    """Draw a case of the contract with one or two features beyond it.

    Shrinks towards one feature, on the plainest case of the contract.
    """
    return _FRONTIER
