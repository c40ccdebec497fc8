"""Scripts: what of a schedule decides how it is written."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from harness import case as c
from harness.validity import pending_after

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outline:
    """A schedule at a glance.

    ``pairs`` are the places of forwards that are followed by their own backward, where there are several:
    they are written as calls of one function. ``tail`` are those with which the schedule ends. ``inline``
    says that the graph is written where it is called, which is in one place only.
    """

    def __init__(self, steps: Sequence[c.Step]) -> None:
        self.steps = steps
        forwards = [step for step in steps if isinstance(step, c.Forward)]
        evaluations = sum(isinstance(step, c.Evaluate) for step in steps)
        self.told = any(step.first_microbatch is not None for step in forwards)
        """Whether TE's modules are told first microbatches."""
        self.pairs = _pairs(steps)
        self.tail = _tail(steps, self.pairs)
        calls = len(forwards) + evaluations - max(len(self.pairs) - 1, 0)
        self.fails = any(fails(step) for step in steps)
        self.draws_after_failing = _draws_after_failing(steps)
        """Whether tensors are drawn once a region has raised in a backward."""
        self.inline = calls == 1 and not self.told and not any(map(fails, forwards))
        self.learns = any(isinstance(step, c.OptimizerStep) for step in steps)
        self.saves = any(isinstance(step, c.SaveState) for step in steps)

    def pair(self, at: int) -> tuple[c.Forward, c.Backward]:
        """Return the steps of a pair."""
        forward, backward = self.steps[at], self.steps[at + 1]
        assert isinstance(forward, c.Forward)  # noqa: S101 - that is what a pair is
        assert isinstance(backward, c.Backward)  # noqa: S101
        return forward, backward

    def varying(self) -> list[str]:
        """Return in what the pairs differ: the parameters of the function that does one."""
        forwards, backwards = zip(*map(self.pair, self.pairs), strict=True)
        varying = {
            "size": len({step.magnitude for step in forwards}) > 1,
            "gradient_size": len({step.magnitude for step in backwards}) > 1,
            "first": self.told,
        }
        return [name for name, varies in varying.items() if varies]

    def named(self, at: int, *, outputs: bool) -> bool:
        """Tell whether there is a forward here whose tensors need names: not of a pair, and not dropped.

        ``outputs`` says that all outputs are kept.
        """
        step = self.steps[at]
        if not isinstance(step, c.Forward) or at in self.pairs or fails(step):
            return False
        following = self.steps[at + 1 : at + 2]
        newest = pending_after(self.steps)[at] - 1
        dropped = not following or following == (c.Abandon(newest),)
        return self.inline or outputs or not dropped


def runs(step: c.Step) -> bool:
    """Tell whether a step runs modules forward or backward, for which it draws a tensor."""
    return isinstance(step, c.Forward | c.Evaluate | c.Backward)


def first_of_the_last_backwards(steps: Sequence[c.Step]) -> int | None:
    """Return the place of the first backward, after which only backwards run; None where others run too."""
    running = [at for at, step in enumerate(steps) if runs(step)]
    backwards = [at for at in running if isinstance(steps[at], c.Backward)]
    return backwards[0] if backwards and running[-len(backwards) :] == backwards else None


def fails(step: c.Step) -> bool:
    """Tell whether a region raises in a step."""
    return isinstance(step, c.Forward | c.Backward) and step.fails is not None


def _draws_after_failing(steps: Sequence[c.Step]) -> bool:
    failed = False
    for step in steps:
        if failed and runs(step):
            return True
        failed |= isinstance(step, c.Backward) and fails(step)
    return False


def _pairs(steps: Sequence[c.Step]) -> list[int]:
    pending = [0, *pending_after(steps)]
    found = [
        at
        for at, (step, following) in enumerate(itertools.pairwise(steps))
        if isinstance(step, c.Forward) and not fails(step) and pending[at] == 0 and _is_plain(following)
    ]
    ways = {step.way for at in found if isinstance(step := steps[at + 1], c.Backward)}
    return found if len(found) > 1 and len(ways) == 1 else []


def _is_plain(step: c.Step) -> bool:
    return isinstance(step, c.Backward) and not fails(step) and not step.retain


def _tail(steps: Sequence[c.Step], pairs: Sequence[int]) -> list[int]:
    end, tail = len(steps), []
    for at in reversed(pairs):
        if at + 2 != end:
            break
        tail.append(at)
        end = at
    return tail
