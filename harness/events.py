"""Events: what a run tells while it goes on, as lines of JSON in a folder, for a report to be made of.

Each process of a run has a file of its own there, so that any number of them may write at the same time; a
line that was cut off when its process ended is passed over.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from harness import corpus, files
from harness.errors import InvalidInput
from harness.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.corpus import SavedCase

FORMAT = 1
_SUFFIX = ".events.jsonl"
_MAX_BYTES = 64 * 2**20
"""Of one process's file: a night's is a few hundred thousand."""


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Common settings of the structs below."""


class Started(_Event, frozen=True, kw_only=True, tag="started"):
    """A run begins: ``fuzz``, or pytest's process that starts the others."""

    format: int
    time: float
    """Seconds since 1970, as everywhere here."""
    run: Literal["fuzz", "pytest"]
    domains: tuple[str, ...] = ()
    """Empty for those of the tests that pytest collects."""
    seed: int
    cases: int | None = None
    seconds: float | None = None
    shard: tuple[int, int] = (1, 1)
    workers: int


class Where(_Event, frozen=True, kw_only=True, tag="where"):
    """What a process runs on, as in a saved case, and why on this backend."""

    where: dict[str, str]
    reason: str


class Counted(_Event, frozen=True, kw_only=True, tag="counted"):
    """What a process has judged of a domain so far, in all: its last such event counts."""

    domain: str
    since: float
    """When the first case was drawn."""
    time: float
    cases: int
    raised: int = 0
    lacking: dict[str, int] = {}
    features: dict[str, int] = {}
    oracles: dict[str, int] = {}
    violations: dict[str, int] = {}
    known: dict[str, int] = {}


class Failed(_Event, frozen=True, kw_only=True, tag="failed"):
    """A case that fails, or ended the process that judged it; the smallest of its kind counts."""

    domain: str
    kind: str
    crash: bool = False
    saved: msgspec.Raw
    """The case as in its file."""
    path: str | None = None
    command: str | None = None
    """What replays it."""

    def case(self) -> SavedCase:
        """Return the saved case; raises InvalidInput where it is none."""
        return corpus.decode(bytes(self.saved))


class Ended(_Event, frozen=True, kw_only=True, tag="ended"):
    """The run is over, in good order or not."""

    time: float
    interrupted: bool = False
    fault: str | None = None


Event: TypeAlias = Started | Where | Counted | Failed | Ended

_DECODER = msgspec.json.Decoder(Event)


def counted(domain: str, tally: Tally, since: float) -> Counted:
    """Return a tally as an event."""
    return Counted(
        domain=domain,
        since=since,
        time=time.time(),
        cases=tally.cases,
        raised=tally.raised,
        lacking=dict(tally.lacking),
        features=dict(tally.features),
        oracles=dict(tally.oracles),
        violations=dict(tally.violations),
        known=dict(tally.known),
    )


def failed(domain: str, kind: str, saved: SavedCase, path: Path | None, command: str | None) -> Failed:
    """Return a case that fails as an event."""
    return Failed(
        domain=domain,
        kind=kind,
        crash=bool(saved.seen.ending),
        saved=msgspec.Raw(msgspec.json.format(corpus.encode(saved), indent=-1)),
        path=None if path is None else str(path),
        command=command,
    )


class EventLog:
    """Writes the events of this process.

    Args:
        folder: of the run; it is made where it is missing.

    Raises InvalidInput where it cannot be written to, and CannotRunHere where the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        files.make_folder(folder)
        host = "".join(letter for letter in platform.node() if letter.isalnum() or letter == "-")
        self._path = folder / f"{host}-{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"

    def add(self, event: Event) -> None:
        """Append an event; whoever reads then finds it, even if this process ends at once."""
        files.append(self._path, msgspec.json.encode(event) + b"\n")


def load(folder: Path) -> list[list[Event]]:
    """Return the events of each process that wrote to a folder, or to one within it.

    Raises InvalidInput where there are none, or where they are not to be understood.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder.")
    found = [list(_events(path)) for path in sorted(folder.rglob(f"*{_SUFFIX}"))]
    if not any(found):
        raise InvalidInput(f"{folder}: no run has recorded events (*{_SUFFIX}) in this folder.")
    return found


def _events(path: Path) -> Iterator[Event]:
    for number, line in enumerate(files.read(path, _MAX_BYTES).split(b"\n"), 1):
        try:
            event = _DECODER.decode(line)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"{path}, line {number}: not an event: {files.quoted(error)}") from error
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            # Cut off when its process ended, or the disk was full.
            continue
        if isinstance(event, Started) and event.format > FORMAT:
            raise InvalidInput(f"{path}: written by a newer te-harness; use that one.")
        yield event
