"""The case that all benchmarks judge: three modules in a reentrant region, three iterations."""

from __future__ import annotations

from harness import case as c
from tests.benchmarks import by_hand

CASE = c.Case(
    graph=c.Autocast(c.Region(c.Chain((c.Linear(), c.LayerNormLinear(), c.LayerNormMLP())))),
    schedule=(c.Forward(), c.Backward()) * by_hand.ITERATIONS,
    rows=by_hand.ROWS,
    width=by_hand.WIDTH,
)
