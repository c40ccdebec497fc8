"""What came of a case, as plain data that travels between processes and into files."""

from __future__ import annotations

import msgspec

from harness.trace import Event, RunError
from harness.violations import OracleName, Violation


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case: violations (none: it held) and what the checkpointed run showed."""

    fingerprint: str
    violations: tuple[Violation, ...]
    evaluated: tuple[OracleName, ...] = ()
    """The oracles that had something to judge."""
    direct_error: RunError | None = None
    checkpointed_error: RunError | None = None
    queues: tuple[dict[str, int], ...] = ()
    """Queue lengths of the checkpointed run at each standstill, empty queues left out."""
    events: tuple[Event, ...] = ()
    """Pushes, pops and runs of callables in the checkpointed run, in order."""

    @property
    def held(self) -> bool:
        """Whether no oracle objected."""
        return not self.violations

    @property
    def signature(self) -> tuple[str, ...]:
        """Equal for verdicts of one kind: which oracles objected and with which errors."""
        return tuple(sorted({violation.signature for violation in self.violations}))
