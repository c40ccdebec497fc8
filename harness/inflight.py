"""In flight: the case that a worker is judging, on the disk before it is judged.

However the worker's process ends, its file then names the case: one small file for each worker. To bring it
up to date on a disk takes 2 to 4 milliseconds where that has a cache of its own to write back, and 0.05 where
it has none; a case takes some forty. So the cases of a round are written at once, and which of them is being
judged only as far as it survives the process.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness import case as c
from harness import files, validity
from harness.errors import CannotRunHere

_HEADER = struct.Struct("<?dIIII")
"""Whether a case is being judged, since when (``time.monotonic``, which is the system's), by which process;
where in the file it is, its length, and its checksum: what was half written when the machine went down is no
case."""
_FIRST = 64
"""Where the cases begin."""

_sync = getattr(os, "fdatasync", os.fsync)


class InFlight:
    """The file of one worker, as that worker writes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Where each announced case is, and how long; what is not announced goes behind them.
        self._places: dict[str, tuple[int, bytes]] = {}
        self._end = _FIRST

    def announce(self, cases: Sequence[c.Case]) -> None:
        """Note the cases that are judged next; raises CannotRunHere where there is no room for them."""
        self._places, self._end = {}, _FIRST
        encoded = [c.encode(case) for case in cases]
        for case, data in zip(cases, encoded, strict=True):
            self._places[case.fingerprint] = self._end, data
            self._end += len(data)
        self._write(b"".join(encoded), _FIRST)

    @contextlib.contextmanager
    def judging(self, case: c.Case) -> Iterator[None]:
        """Note a case that is judged within; what ends this process, like DeviceLost, leaves it noted."""
        self.begin(case)
        try:
            yield
        except Exception:
            self.end()
            raise
        self.end()

    def begin(self, case: c.Case) -> None:
        """Note the case that is judged from now on; raises CannotRunHere where there is no room for it."""
        place = self._places.get(case.fingerprint)
        if place is None:
            place = self._end, c.encode(case)
            self._write(place[1], self._end)
        start, data = place
        header = _HEADER.pack(True, time.monotonic(), os.getpid(), start, len(data), zlib.crc32(data))
        os.pwrite(self._file, header, 0)

    def end(self) -> None:
        """Note that the case is judged."""
        os.pwrite(self._file, b"\0", 0)

    def _write(self, data: bytes, start: int) -> None:
        try:
            os.pwrite(self._file, data, start)
            _sync(self._file)
        except OSError as error:
            if error.errno not in files.NO_ROOM:
                raise
            raise CannotRunHere("no room is left to note which case is judged.") from error


class Flight(msgspec.Struct, frozen=True):
    """What a worker's file says: the case that it is judging, since when, and its process."""

    case: c.Case
    since: float
    pid: int


def read(path: Path) -> Flight | None:
    """Return what a worker is judging, or was when it ended; None where that is nothing."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _HEADER.size:
        return None
    judging, since, pid, start, length, checksum = _HEADER.unpack_from(data)
    encoded = data[start : start + length]
    if not judging or zlib.crc32(encoded) != checksum:
        return None
    return Flight(validity.decode(encoded), since, pid)
