"""Events: what a run tells while it goes on, as lines of JSON in a folder, for a report to be made of.

Each process of a run has a file of its own there, so that any number of them may write at the same time; a
last line that was cut off when its process ended is passed over. Folders come from strangers too: what is
read is bounded, becomes the structs below and nothing else, and each case is checked.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from harness import corpus, files
from harness.errors import HarnessError, HarnessFault, InvalidInput
from harness.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.corpus import SavedCase

FORMAT = 1
"""Version of the layout of a line; the case in it has versions of its own."""

MAX_FILE_BYTES = 64 * 2**20
"""Of one process's file: a night's is a few million."""

MAX_BYTES = 4 * MAX_FILE_BYTES
"""Of all files of a folder."""

_SUFFIX = ".events.jsonl"
_LONGEST_HOST = 40

Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=253402300800)]
"""Seconds since 1970, until the year 9999: no clock shows others."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """Common settings of the structs below."""

    format: int = FORMAT


class Started(_Event, frozen=True, kw_only=True, tag="started"):
    """A run begins: ``fuzz``, or pytest's process that starts the others."""

    time: Time
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
    since: Time
    """When the first case was drawn."""
    time: Time
    cases: int
    raised: int = 0
    lacking: dict[str, int] = {}
    features: dict[str, int] = {}
    oracles: dict[str, int] = {}
    violations: dict[str, int] = {}
    known: dict[str, int] = {}


class Failed(_Event, frozen=True, kw_only=True, tag="failed"):
    """A case that fails, or ended the process that judged it; the smallest of its kind counts.

    It is told when it is seen, so that a run that is killed has told of it, and again once it is saved.
    """

    domain: str
    kind: str
    crash: bool = False
    saved: msgspec.Raw
    """The case as in its file."""
    path: str | None = None
    """Where it was saved; None as long as it is not."""
    command: str | None = None
    """What replays it, once it is in a file."""
    shared: bool = False
    """Others had found it, and the database had it."""

    def case(self) -> SavedCase:
        """Return the saved case; raises InvalidInput where it is none."""
        return corpus.decode(bytes(self.saved))


class Ended(_Event, frozen=True, kw_only=True, tag="ended"):
    """The run is over, in good order or not."""

    time: Time
    interrupted: bool = False
    fault: str | None = None
    """What ended it before its time, other than an interruption."""
    fault_code: int = HarnessFault.exit_code
    """The exit code of that error, which tells whose fault it is."""


Event: TypeAlias = Started | Where | Counted | Failed | Ended

_DECODER = msgspec.json.Decoder(Event)


class _Header(msgspec.Struct):
    """The one field that every past and future layout of a line has."""

    format: int


_HEADER = msgspec.json.Decoder(_Header)


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


def failed(
    domain: str,
    kind: str,
    saved: SavedCase,
    path: Path | None = None,
    command: str | None = None,
    *,
    shared: bool = False,
) -> Failed:
    """Return a case that fails as an event."""
    return Failed(
        domain=domain,
        kind=kind,
        crash=bool(saved.seen.ending),
        saved=msgspec.Raw(msgspec.json.format(corpus.encode(saved), indent=-1)),
        path=None if path is None else str(path),
        command=command,
        shared=shared,
    )


# --- Files -------------------------------------------------------------------------------------------


class EventLog:
    """Writes the events of this process.

    That events cannot be written is no reason to end a run: ``problem`` is then the first such error, and
    nothing is written from then on, so that a line which was cut off stays the last one.

    Args:
        folder: of the run; it is made where it is missing.

    Raises InvalidInput where it cannot be written to, and CannotRunHere where the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        files.make_folder(folder)
        host = "".join(letter for letter in platform.node() if letter.isalnum() or letter == "-")
        name = f"{host[:_LONGEST_HOST]}-{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
        self._path = folder / name
        self.problem: HarnessError | None = None
        # Whether there is room is known before the work, not after it.
        files.append(self._path, b"")

    def add(self, event: Event) -> None:
        """Append an event; whoever reads then finds it, even if this process ends at once."""
        if self.problem is not None:
            return
        try:
            files.append(self._path, msgspec.json.encode(event) + b"\n")
        except HarnessError as error:
            self.problem = error


def load(folder: Path) -> Iterator[list[Event]]:
    """Yield the events of each process that wrote to a folder, or to one within it.

    Raises InvalidInput, in one line, where there are none, where a line is none, for a newer format, and
    where there is more than is read.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: there is no such folder.")
    paths = sorted(folder.rglob(f"*{_SUFFIX}"))
    left, any_ = MAX_BYTES, False
    for path in paths:
        data = files.read(path, MAX_FILE_BYTES)
        left -= len(data)
        if left < 0:
            raise InvalidInput(f"{folder}: more than the {MAX_BYTES} bytes of events that are read.")
        events = list(_events(path, data))
        any_ = any_ or bool(events)
        yield events
    if not any_:
        raise InvalidInput(f"{folder}: no run has recorded events (*{_SUFFIX}) in this folder.")


def _events(path: Path, data: bytes) -> Iterator[Event]:
    # What has no end of line was cut off when its process ended, or the disk was full.
    whole = data.split(b"\n")[:-1]
    for number, line in enumerate(whole, 1):
        try:
            yield _decoded(line)
        except InvalidInput as error:
            raise InvalidInput(f"{files.printable(str(path))}, line {number}: {error}") from error


def _decoded(line: bytes) -> Event:
    try:
        written = _HEADER.decode(line).format
        if written > FORMAT:
            raise InvalidInput(
                f"events of format {written} were written by a newer te-harness; use that one."
            )
        event = _DECODER.decode(line)
    except RecursionError as error:
        raise InvalidInput("not an event: nested too deeply.") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"not an event: {files.quoted(error)}") from error
    if isinstance(event, Failed):
        # A file of strangers is refused as a whole, not when its case is looked at.
        event.case()
    return event
