"""Processes that hold leases, for as long as they are let."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.gpus import Gpu
from harness.leases import bind, take
from tests.harness.fake_nvml import FakeNvml


class Holder:
    """A process that has done something, said what came of it, and waits for its end."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(*arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def said(self) -> Any:
        """What came of it; to be asked once."""
        return self._pipe.recv()

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextlib.contextmanager
def holders() -> Iterator[Callable[..., Holder]]:
    """Start processes, all of which are gone at the end."""
    started: list[Holder] = []

    def start(work: Callable[..., None], *arguments: object) -> Holder:
        started.append(Holder(work, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for holder in started:
            holder.kill()


def _wait(connection: Connection) -> None:
    with contextlib.suppress(EOFError):
        connection.recv()


def take_one(gpus: list[Gpu], place: Path, connection: Connection) -> None:
    """Take a lease and say the GPU's word."""
    connection.send(take(gpus, place).word)
    _wait(connection)


def take_one_and_have_children(gpus: list[Gpu], place: Path, connection: Connection) -> None:
    """Take a lease, then start one child by a fork and one that inherits all files; say their numbers.

    Both wait for their standard input to end.
    """
    word = take(gpus, place).word
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = subprocess.Popen(program, stdin=subprocess.PIPE, close_fds=False)  # noqa: S603
    forked = os.fork()
    if forked == 0:
        os.read(os.pipe()[0], 1)
    connection.send((word, child.pid, forked))
    _wait(connection)


def bind_to_one(nvml: FakeNvml, environment: dict[str, str], connection: Connection) -> None:
    """Bind as workers do; say the GPU, and what the environment says of it then."""
    sys.modules["pynvml"] = nvml  # type: ignore[assignment]
    # The backend of these tests may have hidden all GPUs.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ.update(environment)
    gpu = bind("cuda")
    connection.send((gpu, bind("cuda") is gpu, os.environ.get("CUDA_VISIBLE_DEVICES")))
    _wait(connection)
