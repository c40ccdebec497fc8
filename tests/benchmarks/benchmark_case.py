"""The case that all benchmarks judge: three modules in a reentrant region, three iterations."""

from __future__ import annotations

from typing import Final, Literal

from harness import case as c

WIDTH: Final[Literal[32]] = 32
ROWS: Final[Literal[16]] = 16
ITERATIONS: Final = 3

CASE = c.Case(
    graph=c.Autocast(c.Region(c.Chain((c.Linear(), c.LayerNormLinear(), c.LayerNormMLP())))),
    schedule=(c.Forward(), c.Backward()) * ITERATIONS,
    rows=ROWS,
    width=WIDTH,
)
