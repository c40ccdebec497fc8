"""What an oracle reports, as plain data, and how it reads."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

OracleName: TypeAlias = Literal[
    "outputs",
    "input gradients",
    "parameter gradients",
    "FP8 state",
    "FIFO drained",
    "pairing",
    "recompute count",
    "global state",
    "same errors",
    "steady memory",
]
ORACLES: tuple[OracleName, ...] = get_args(OracleName)


class Difference(msgspec.Struct, frozen=True):
    """How far two tensors are apart: largest absolute and relative difference, elements that differ.

    The relative difference is that of the largest absolute one to the largest magnitude expected.
    """

    absolute: float
    relative: float
    elements: int
    total: int

    def __str__(self) -> str:
        return (
            f"{self.elements} of {self.total} elements differ, by up to {self.absolute:.3g}"
            f" ({self.relative:.2%} of the largest)"
        )


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One broken promise: which oracle, what happened, and where."""

    oracle: OracleName
    message: str
    iteration: int
    region: int | None = None
    module: str | None = None
    difference: Difference | None = None
    queues: dict[str, int] = {}
    noise: bool = False
    """The direct run differed from itself in the same place: the comparison is below the noise floor."""

    @property
    def signature(self) -> str:
        """Equal for violations of one kind: the oracle, and for an error its cause or type."""
        if self.oracle == "same errors":
            return f"{self.oracle}: {self.message.split(':', 1)[0]}"
        return self.oracle

    def __str__(self) -> str:
        where = [f"iteration {self.iteration}"]
        if self.region is not None:
            where.append(f"region {self.region}")
        if self.module is not None:
            where.append(self.module)
        text = f"{self.oracle} [{', '.join(where)}]: {self.message}"
        if self.difference is not None:
            text += f"; {self.difference}"
        if self.queues:
            lengths = ", ".join(f"{name}: {length}" for name, length in self.queues.items())
            text += f"; FIFO lengths: {lengths}"
        if self.noise:
            text += "; but the direct run differs from itself here (noise floor)"
        return text
