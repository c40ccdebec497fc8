"""The frontier: cases of the contract, each taken beyond it by a few features.

A case switches on few features at a time, so that one known fault does not hide another. Each feature is a
twist: it takes any case, and returns one that is valid and has the feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from hypothesis import strategies as st

from harness import case as c
from harness.known_issues import may_be_known
from strategies import graph_twists as graph
from strategies import schedule_twists as schedule
from strategies.contract import contract
from strategies.frozen import thawed
from strategies.trees import mapped
from strategies.weights import weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Twist = Callable[[c.Case], st.SearchStrategy[c.Case]]

TWISTS: Final[tuple[Twist, ...]] = (
    graph.nested, graph.with_operation, graph.with_recomputing, graph.with_recomputed_attention,
    graph.opened_inside, graph.without_gradient, graph.saving_nothing, graph.with_result_dropped,
    graph.changed_in_place, graph.with_recipe_of_its_own, graph.under_another_checkpoint, graph.given_more,
    graph.without_te_modules, graph.evaluated_with_gradients, graph.tracked_dropout,
    graph.recomputing_under_torch_autocast, graph.reused, graph.with_copy_beside, graph.inferred_first,
    schedule.abandoned, schedule.out_of_order, schedule.joined,
    schedule.evaluated_amid, schedule.in_one_autocast, schedule.with_recipe_changed,
    schedule.with_state_loaded, schedule.with_extra_state_loaded_amid, schedule.deep_copied,
    schedule.raising, schedule.in_microbatches, schedule.retained, schedule.by_grad,
)  # fmt: skip
"""What takes a case beyond the contract, in the order in which they are applied: those that number modules or
regions come after those that add some."""


@st.composite
def _twisted(draw: st.DrawFn) -> c.Case:
    case = draw(contract())
    numbers = draw(st.lists(st.integers(0, len(TWISTS) - 1), min_size=1, max_size=2, unique=True))
    for number in sorted(numbers):
        case = draw(TWISTS[number](case))
    case = _added_up_alike(case)
    return msgspec.structs.replace(case, graph=thawed(case.graph))


def _added_up_alike(case: c.Case) -> c.Case:
    """Return the case with modules of their own for those used again, where gradients would round otherwise.

    A reentrant region gives a parameter its gradient at once, others together with those of the parameter's
    other uses: to what an earlier backward has left there they are added in another order.
    """
    nodes = c.walk(case.graph)
    numbered = c.modules(case)
    if not _backwards_add_up(case.schedule) or not any(
        isinstance(node, c.Region) and node.use_reentrant for node in nodes
    ):
        return case

    def changed(node: c.Node) -> c.Node:
        return numbered[node.module] if isinstance(node, c.Reuse) else node

    return msgspec.structs.replace(case, graph=mapped(case.graph, changed))


def _backwards_add_up(steps: Iterable[c.Step]) -> bool:
    """Tell whether a backward adds to the gradients of another: a forward drops those that are there."""
    left = False
    for step in steps:
        if isinstance(step, c.Forward):
            left = False
        elif isinstance(step, c.Backward):
            if left or step.losses > 1:
                return True
            left = True
    return False


_MOST_REDRAWS: Final = 4
_CHECKS_KNOWN: Final = weighted((1, True), (2, False))
"""The share of cases that goes on checking what is known already."""


@st.composite
def _steered(draw: st.DrawFn) -> c.Case:
    case = draw(_TWISTED)
    if draw(_CHECKS_KNOWN):
        return case
    for _ in range(_MOST_REDRAWS):
        if not may_be_known(case):
            return case
        case = draw(_TWISTED)
    return case


_TWISTED: Final = _twisted()
_STEERED: Final = _steered()


def frontier(*, steered: bool = True) -> st.SearchStrategy[c.Case]:
    """Draw a case of the contract with one or two features beyond it.

    Where it is ``steered``, two cases out of three are drawn anew, a few times, while they have the features
    of a known issue. Shrinks towards one feature, on the plainest case of the contract.
    """
    return _STEERED if steered else _TWISTED
