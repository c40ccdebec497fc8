"""What drawn cases shrink to: a finding is read by a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import find, settings

from harness import case as c
from harness.features import features
from strategies.contract import contract

if TYPE_CHECKING:
    from collections.abc import Callable

search = settings(database=None, deadline=None, derandomize=True, max_examples=1000)

PLAIN = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))


def shrunk(condition: Callable[[c.Case], bool]) -> c.Case:
    return find(contract(), condition, settings=search)


def with_feature(name: str) -> c.Case:
    return shrunk(lambda case: name in features(case))


def test_the_simplest_case_is_one_linear_in_a_reentrant_region_under_an_autocast() -> None:
    assert shrunk(lambda _: True) == PLAIN


def test_a_module_in_eval_mode_is_alone_and_runs_once() -> None:
    found = with_feature("eval module")
    assert found.graph == c.Autocast(c.Region(c.Linear(training=False)))
    assert found.schedule == PLAIN.schedule


def test_a_switch_between_forward_and_backward_is_the_only_extra_step() -> None:
    found = with_feature("mode flipped before backward")
    assert found.graph == PLAIN.graph
    assert found.schedule == (c.Forward(), c.SetMode(0, training=False), c.Backward())
