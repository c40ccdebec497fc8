"""The trial of a mutant: what came of judging cases under it until one failed."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from harness import case as c

How: TypeAlias = str
"""What objects to a mutant: an oracle, or one of OTHER_WAYS."""

OTHER_WAYS = ("direct run", "start", "hang", "crash", "fault")
"""Besides the oracles: the direct run raised, which no case of the contract does; the correction could not be
applied; a case did not end; the process did; the harness itself failed."""

Outcome: TypeAlias = Literal["killed", "survived", "unreached"]


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="trial"):
    """What came of a mutant."""

    mutant: str
    outcome: Outcome
    by: tuple[How, ...] = ()
    """What objected to the first case that failed."""
    case: int | None = None
    """The number of that case among all cases of the campaign, from 1 on."""
    reaching: int = 0
    """How many of the cases run the mutated lines."""
    smallest: c.Case | None = None
    """What the first failing case was shrunk to."""
    changes_direct: bool = False
    """Of one that survived: whether it changes what direct execution gives, and so both runs alike."""
    seconds: float = 0.0


class Sole(msgspec.Struct, frozen=True, tag="sole"):
    """In how many cases each oracle objects to a mutant whose first failing case only one objected to.

    Where more than one does, the cases are those up to the first that a second one objects to.
    """

    mutant: str
    counted: dict[How, int]


Finished: TypeAlias = Trial | Sole
