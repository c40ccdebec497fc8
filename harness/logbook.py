"""Logbooks: what the processes of one run say of themselves for the time when they can say nothing any more.

Each process notes the case that it judges in a file of its own; beside it, where and for which campaign it
judges, and, where it knows, how it is about to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness import inflight
from harness.corpus import Found
from harness.crashes import crash
from harness.inflight import InFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness import case as c
    from harness.corpus import SavedCase
    from harness.inflight import Flight
    from harness.session import Session
    from harness.target import Target

_CASE, _PAGE, _ENDING, _CRASHED = ".case", ".page", ".ending", ".crashed"


class _Page(msgspec.Struct, frozen=True):
    """Where cases are judged, and the campaign that they are drawn in, if any."""

    where: dict[str, str] = {}
    found: Found | None = None


class Logbook:
    """The logbook of one process.

    Args:
        folder: of the run; all its processes write there.
        name: of the process, told from the others'.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._where: dict[str, str] = {}
        self.announce: Callable[[Sequence[c.Case]], None] = lambda _cases: None
        """Notes the cases of a session that are judged next."""

    def open(self, session: Session, target: Target) -> None:
        """Note each case that a session judges from now on."""
        flight = InFlight(self._folder / f"{self._name}{_CASE}")
        session.noted, self.announce = flight.judging, flight.announce
        self._where = target.where(session)
        self._write(None)

    @contextlib.contextmanager
    def drawing(self, found: Found) -> Iterator[None]:
        """Note that the cases judged within are drawn in a campaign, which can go on without one of them.

        What ends this process, like DeviceLost, leaves it noted.
        """
        self._write(found)
        try:
            yield
        except Exception:
            self._write(None)
            raise
        self._write(None)

    def end(self, how: str) -> None:
        """Note how this process is about to end, or is ended."""
        (self._folder / f"{self._name}{_ENDING}").write_text(how)

    def crashed(self) -> frozenset[str]:
        """Return the fingerprints of the cases that have ended a process of this run."""
        return frozenset(path.stem for path in self._folder.glob(f"*{_CRASHED}"))

    def _write(self, found: Found | None) -> None:
        page = self._folder / f"{self._name}{_PAGE}"
        page.write_bytes(msgspec.json.encode(_Page(where=self._where, found=found)))


def last_case(folder: Path, name: str, how: str) -> SavedCase | None:
    """Return the case with which a process has ended, as it is saved; None where it was judging none.

    ``how`` is how it ended as far as others can tell; what it noted itself goes first.
    """
    flight = inflight.read(folder / f"{name}{_CASE}")
    if flight is None:
        return None
    ending, written = folder / f"{name}{_ENDING}", folder / f"{name}{_PAGE}"
    page = msgspec.json.decode(written.read_bytes(), type=_Page)
    return crash(flight.case, ending.read_text() if ending.exists() else how, page.where, page.found)


def close(folder: Path, name: str) -> None:
    """Take note that a process has ended: another may have its number soon, and judges nothing."""
    (folder / f"{name}{_CASE}").unlink(missing_ok=True)


def leave_out(folder: Path, case: str) -> bool:
    """Have no process of a run judge a case, by its fingerprint, again; return whether that is new."""
    mark = folder / f"{case}{_CRASHED}"
    known = mark.exists()
    mark.touch()
    return not known


def flights(folder: Path) -> Iterator[tuple[str, Flight]]:
    """Yield what each process of a run is judging, with its name."""
    for path in folder.glob(f"*{_CASE}"):
        flight = inflight.read(path)
        if flight is not None:
            yield path.stem, flight


def kill(folder: Path, name: str, flight: Flight, how: str) -> None:
    """End a process of a run, and note how it ended."""
    Logbook(folder, name).end(how)
    with contextlib.suppress(ProcessLookupError):
        os.kill(flight.pid, signal.SIGKILL)
