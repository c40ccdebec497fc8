"""What an unfinished campaign has finished already: a file of JSON lines, one for each thing.

Each line is on the disk before the next is begun, so that a campaign that is killed loses nothing; a line
that was cut off is passed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from harness import files

_Line = TypeVar("_Line")


def code_digest() -> str:
    """Return a hash of the program's own code: what was finished by other code is to be done anew."""
    hashed = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.rglob("*.py"), *(here.parent / "strategies").glob("*.py")]):
        hashed.update(path.name.encode() + path.read_bytes())
    return hashed.hexdigest()


class Journal(Generic[_Line]):
    """The journal of one campaign, told from others by ``key``: whatever decides what it finds."""

    def __init__(self, kind: str, key: Any, layout: Any) -> None:
        name = hashlib.sha256(msgspec.json.encode(key)).hexdigest()[:32]
        self.path = files.cache_folder() / kind / f"{name}.jsonl"
        self._decoder = msgspec.json.Decoder(layout)
        self.lines: list[_Line] = []

    def __enter__(self) -> Journal[_Line]:
        files.make_folder(self.path.parent)
        written = self.path.read_bytes() if self.path.exists() else b""
        self.lines = [line for text in written.splitlines() for line in self._decoded(text)]
        self._file = self.path.open("ab")
        if not written.endswith(b"\n"):
            # After a line that was cut off, the next one must begin on its own.
            self._file.write(b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def forget(self) -> None:
        """Remove the file: the campaign is at its end."""
        self.path.unlink(missing_ok=True)

    def add(self, line: _Line) -> None:
        """Add a line."""
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _decoded(self, text: bytes) -> list[_Line]:
        with contextlib.suppress(msgspec.MsgspecError):
            return [self._decoder.decode(text)]
        return []
