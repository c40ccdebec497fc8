"""Files from strangers are read within a bound; files of ours are written whole, and over nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from harness.errors import CannotRunHere, HarnessError, InvalidInput

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of the system that say so."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


_LONGEST_LINE = 300


class FileTakenError(InvalidInput):
    """There is a file of that name already."""


def cache_folder() -> Path:
    """Return the folder for what can be fetched or made again; it need not be there.

    Raises CannotRunHere for a user without a home, as some containers have.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The standard has a relative path, and an empty one, ignored.
    if given.is_absolute():
        return given / "te-harness"
    try:
        return Path.home() / ".cache" / "te-harness"
    except RuntimeError as error:
        # A folder that all may write to will not do: code is imported from here.
        raise CannotRunHere("this user has no home folder: set XDG_CACHE_HOME to one of theirs.") from error


def read(path: Path, limit: int) -> bytes:
    """Return what a file holds; a larger one than ``limit`` bytes is refused before it is read whole.

    Raises InvalidInput where there is no such file, it is no regular one, or it is too large.
    """
    try:
        if not path.exists():
            raise InvalidInput(f"{path}: there is no such file.")
        # Opening a pipe would wait for a writer that may never come.
        if not path.is_file():
            raise InvalidInput(f"{path}: this is not a file.")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error}).") from error
    if len(data) > limit:
        raise InvalidInput(f"{path}: larger than the {limit} bytes that are read of such a file.")
    return data


def printable(text: str) -> str:
    """Return a text on one line and without control characters: a terminal obeys those of a stranger too."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def quoted(text: object) -> str:
    """Return what may hold a stranger's words, printable and short enough for a message."""
    line = printable(str(text))
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..."


def check_free(*paths: Path | None) -> None:
    """Raise ``InvalidInput`` where ``write_new`` would surely fail: before the work, not after it."""
    given = [path for path in paths if path is not None]
    for path in given:
        if path.exists():
            raise _taken(path)
        if not path.parent.is_dir():
            raise InvalidInput(f"{path}: there is no folder {path.parent}; make it first.")
        if not os.access(path.parent, os.W_OK):
            raise InvalidInput(f"{path}: the folder {path.parent} cannot be written to.")
    if len({path.resolve() for path in given}) < len(given):
        raise InvalidInput(f"{given[0]}: two reports cannot be one file; give each a name of its own.")


def check_folder(folder: Path) -> None:
    """Raise ``InvalidInput`` for a folder that ``make_folder`` or a write into it would surely refuse."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InvalidInput(f"{folder}: {nearest} is not a folder.")
    if not os.access(nearest, os.W_OK):
        raise InvalidInput(f"{folder}: the folder {nearest} cannot be written to.")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it where they are not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_new(path: Path, data: bytes) -> None:
    """Write a new file: all of it under its name, or nothing at all.

    It is written under another name in the same folder and linked to its own once it is on the disk.
    A link, unlike a rename, never replaces a file that came to be in the meantime.

    Raises FileTakenError where there is one already, InvalidInput where the folder is missing or may
    not be written to, and CannotRunHere where the disk is full or read-only.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _link(temporary, path)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def append(path: Path, data: bytes) -> None:
    """Append to a file of this process's own, which is made where it is missing.

    Raises InvalidInput where the folder may not be written to, and CannotRunHere where the disk is full.
    """
    left = memoryview(data)
    try:
        with path.open("ab", buffering=0) as file:
            # On a disk that is all but full, a part of it may be written, and no error raised.
            while left:
                left = left[file.write(left) :]
    except OSError as error:
        raise _unwritable(path, error) from error


def remove(path: Path) -> None:
    """Remove a file; raises InvalidInput where the user may not."""
    try:
        path.unlink()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be removed ({error.strerror or error}).") from error


def _link(temporary: Path, path: Path) -> None:
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # This file system has no links (exFAT, some network drives): a check and a rename come nearest.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        temporary.replace(path)


def _taken(path: Path) -> FileTakenError:
    return FileTakenError(f"{path}: exists already and is not overwritten; give another name.")


def _unwritable(path: Path, error: OSError) -> HarnessError:
    message = f"{path}: cannot be written ({error.strerror or error})"
    if error.errno in NO_ROOM:
        return CannotRunHere(f"{message}; make room or give another place.")
    return InvalidInput(f"{message}; give another place.")
