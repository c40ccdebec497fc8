"""In flight: the case that a worker is judging, on the disk before it is judged.

However the worker's process ends, its file then names the case: one small file for each worker, which it
writes over, so that a disk has one block to bring up to date.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness import case as c
from harness import files, validity
from harness.errors import CannotRunHere

_HEADER = struct.Struct("<?dIII")
"""Whether a case is being judged, since when (``time.monotonic``, which is the system's), by which process,
its length, its checksum: what was half written when the machine went down is no case."""

_sync = getattr(os, "fdatasync", os.fsync)


class InFlight:
    """The file of one worker, as that worker writes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

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
        data = c.encode(case)
        try:
            os.pwrite(self._file, _header(data) + data, 0)
            _sync(self._file)
        except OSError as error:
            if error.errno not in files.NO_ROOM:
                raise
            raise CannotRunHere("no room is left to note which case is judged.") from error

    def end(self) -> None:
        """Note that the case is judged."""
        os.pwrite(self._file, b"\0", 0)


def _header(data: bytes) -> bytes:
    return _HEADER.pack(True, time.monotonic(), os.getpid(), len(data), zlib.crc32(data))


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
    judging, since, pid, length, checksum = _HEADER.unpack_from(data)
    encoded = data[_HEADER.size : _HEADER.size + length]
    if not judging or zlib.crc32(encoded) != checksum:
        return None
    return Flight(validity.decode(encoded), since, pid)
