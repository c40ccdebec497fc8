"""What a campaign's workers and the process that supervises them say to each other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from harness import case as c
from harness.campaign import JudgingFault
from harness.corpus import SavedCase
from harness.errors import CannotRunHere, HarnessError, HarnessFault, InvalidInput
from harness.tally import Tally


class Chunk(msgspec.Struct, frozen=True):
    """To a worker: draw so many cases with this seed, for no longer than so many seconds."""

    seed: int
    cases: int
    seconds: float | None
    skipped: frozenset[str] = frozenset()
    """Cases, by their fingerprints, that end the process that judges them."""


class Ready(msgspec.Struct, frozen=True):
    """The backend runs, here and for this reason; give me a chunk."""

    where: dict[str, str]
    reason: str


class Counted(msgspec.Struct, frozen=True):
    """What was judged since I said so last."""

    tally: Tally


class Failed(msgspec.Struct, frozen=True):
    """A case that fails; a smaller one of its kind may follow."""

    kind: str
    saved: SavedCase


class Done(msgspec.Struct, frozen=True):
    """The chunk is finished; give me another."""


class Lost(msgspec.Struct, frozen=True):
    """The case in flight has broken this process's device, in this way: end me, and believe no more of me."""

    how: str


class Broken(msgspec.Struct, frozen=True):
    """An error of the harness: its text and exit code, since exceptions do not travel well."""

    message: str
    exit_code: int
    case: c.Case | None = None

    def error(self) -> HarnessError:
        """Return the error that it tells of."""
        for kind in (InvalidInput, CannotRunHere):
            if self.exit_code == kind.exit_code:
                return kind(self.message)
        return HarnessFault(self.message)


@contextlib.contextmanager
def telling(send: Callable[[Any], None]) -> Iterator[None]:
    """Tell the supervisor what ends a worker's work, in words; an error that nobody foresaw goes on, too."""
    try:
        yield
    except HarnessError as error:
        send(Broken(str(error), error.exit_code, error.case if isinstance(error, JudgingFault) else None))
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:
        send(Broken(f"{type(error).__name__}: {error}", HarnessFault.exit_code))
        raise


Message: TypeAlias = Ready | Counted | Failed | Done | Lost | Broken
"""From a worker."""
