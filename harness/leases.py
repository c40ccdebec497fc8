"""Leases: each process is bound to one GPU, for as long as it lives.

A lease is a locked file, named after a GPU and a slot on it. The kernel gives the lock up when the process
ends, however it ends; so whoever replaces a worker finds its slot free, and processes of several runs of one
user share the GPUs evenly.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import CannotRunHere
from harness.gpus import BYTES_PER_WORKER, Gpu, visible

_TAKEN = frozenset({errno.EACCES, errno.EAGAIN})

_bound: Gpu | None = None


def bind(backend: str) -> Gpu | None:
    """Bind this process to a GPU, unless the backend asked for is "cpu" or there is no GPU to bind it to.

    To be called before CUDA starts in this process, best before torch is imported. Later calls return the
    same GPU. A process that is started by a bound one sees that GPU alone, and takes a slot of its own there.

    Raises CannotRunHere where leases cannot be kept: without them all processes would meet on one GPU, and
    nobody would know why they are slow or out of memory.
    """
    global _bound
    if _bound is None:
        gpus = visible(backend)
        # Another's work may fill a GPU.
        gpus = tuple(gpu for gpu in gpus if gpu.free >= BYTES_PER_WORKER) or gpus
        if gpus:
            _bound = take(gpus, folder())
            os.environ["CUDA_VISIBLE_DEVICES"] = _bound.word
    return _bound


def folder() -> Path:
    """Return this user's folder of leases, below the folder for temporary files; it is made where need be.

    Raises CannotRunHere where it cannot be made, or is not this user's alone: in a folder that all may write
    to, anybody can put a link or a folder of this name.
    """
    try:
        place = Path(tempfile.gettempdir()) / f"te-harness-leases-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise _unusable(error.filename or "the folder for temporary files", error.strerror) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise _unusable(place, "not a folder of this user alone")
    return place


def take(gpus: Sequence[Gpu], place: Path) -> Gpu:
    """Lease the first free slot of these GPUs to this process, and return the GPU that it is on.

    Raises CannotRunHere where the folder ``place`` cannot be written to.
    """
    return next(gpu for gpu, slot in _slots(gpus) if _lock(place / f"{_file_name(gpu.uuid)}.{slot}"))


def _slots(gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, int]]:
    """Yield the first slot of each GPU, then the second of each that has room for two, and so on.

    Once all are full, processes that somebody wants all the same go on in turns.
    """
    most = max(gpu.room for gpu in gpus)
    for slot in itertools.count():
        for gpu in gpus:
            if slot < gpu.room or slot >= most:
                yield gpu, slot


def _file_name(uuid: str) -> str:
    """Return a name for a file; the MIG names of old drivers have slashes."""
    return re.sub(r"[^\w-]", "-", uuid)


def _lock(path: Path) -> bool:
    """Lock a file until this process ends, unless another has."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # This kind of lock is the process's own: a child gets it neither by a fork nor by an exec.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno in _TAKEN:
                return False
            raise
    except OSError as error:
        raise _unusable(path, error.strerror) from error
    # The file stays open: closing it would give the lock up.
    return True


def _unusable(path: object, why: str | None) -> CannotRunHere:
    return CannotRunHere(f"{path}: GPUs cannot be shared out there ({why}); set TMPDIR to another folder.")
