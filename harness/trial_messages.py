"""What the workers that try mutants and the process that supervises them say to each other."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from harness.reach import Reach
from harness.trial import Finished


class Survey(msgspec.Struct, frozen=True):
    """To a worker: judge these cases without a mutant, and note which lines they run, and run directly."""

    numbers: tuple[int, ...]


class Try(msgspec.Struct, frozen=True):
    """To a worker: try a mutant on these cases; ``directly`` are those whose direct run has its lines too."""

    mutant: str
    numbers: tuple[int, ...]
    directly: frozenset[int]


class Exhaust(msgspec.Struct, frozen=True):
    """To a worker: judge all these cases under a mutant, however many fail."""

    mutant: str
    numbers: tuple[int, ...]


Task: TypeAlias = Survey | Try | Exhaust


class Ready(msgspec.Struct, frozen=True):
    """Here is where I run; give me a task."""

    where: dict[str, str]


class Surveyed(msgspec.Struct, frozen=True):
    """The lines that the cases run, and those that their direct runs do."""

    reach: Reach
    directly: Reach


class At(msgspec.Struct, frozen=True):
    """I am about to judge this case."""

    number: int


class Done(msgspec.Struct, frozen=True):
    """What came of a mutant; ``tainted`` says that this process no longer judges right."""

    finished: Finished
    tainted: bool
