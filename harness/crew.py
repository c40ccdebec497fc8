"""Worker processes, each on a pipe of its own.

Nothing is shared that a worker could take to its grave, and its pipe's end of file tells of its death.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_TICK_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0

LONGEST_START_SECONDS = 600.0
"""Until a worker is ready. Seconds as a rule; minutes where many read from a cold disk at once."""

Work: TypeAlias = Callable[[Connection], None]
"""What a worker does with its end of the pipe, until it returns; it must be picklable."""


class Employer(Protocol):
    """Who is told what the workers say."""

    def hear(self, worker: Connection, message: Any) -> None:
        """Take note of a message, and answer it where it wants an answer."""

    def bury(self, worker: Connection, exit_code: int | None) -> None:
        """Take note that a worker has ended."""


class Crew:
    """The worker processes of one employer, who knows each by this end of its pipe."""

    def __init__(self, work: Work, employer: Employer) -> None:
        self._work = work
        self._employer = employer
        self._at: dict[Connection, BaseProcess] = {}
        self._heard: dict[Connection, float] = {}
        self._listened = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a worker has not ended yet."""
        return bool(self._at)

    def start(self, number: int) -> None:
        """Start so many more processes."""
        # Not forked: neither torch nor CUDA survives a fork.
        context = multiprocessing.get_context("spawn")
        for _ in range(number):
            mine, theirs = context.Pipe()
            process = context.Process(target=_be_worker, args=(self._work, theirs), daemon=True)
            process.start()
            # Only the worker holds this end from now on, so that its death closes the pipe.
            theirs.close()
            self._at[mine] = process
            self._heard[mine] = time.monotonic()

    def pid(self, worker: Connection) -> int:
        """Return the process id of a worker."""
        return cast("int", self._at[worker].pid)

    def listen(self) -> None:
        """Wait a moment for what the workers say, and pass it on."""
        away = time.monotonic() - self._listened
        if away > _PATIENCE_SECONDS:
            # This process was stopped, and with it perhaps the workers: that silence is not theirs.
            self._heard = {worker: heard + away for worker, heard in self._heard.items()}
        for worker in cast("list[Connection]", wait(list(self._at), _TICK_SECONDS)):
            if worker in self._at:
                self._hear(worker)
        self._listened = time.monotonic()

    def tell(self, worker: Connection, message: Any) -> None:
        """Send a worker a message."""
        self._heard[worker] = time.monotonic()
        # Should the worker be dead by now, its end of file is what comes next.
        with contextlib.suppress(BrokenPipeError):
            worker.send(message)

    def silent_for(self, seconds: float) -> list[Connection]:
        """Return the workers that have neither said nor been told anything for so long."""
        since = time.monotonic() - seconds
        return [worker for worker, heard in self._heard.items() if heard < since]

    def dismiss(self, worker: Connection) -> None:
        """End a worker at once; its employer is not told."""
        process = self._at.pop(worker)
        del self._heard[worker]
        process.kill()
        process.join(_PATIENCE_SECONDS)
        worker.close()

    def end(self) -> None:
        """End the processes that still run, and wait for them."""
        for process in self._at.values():
            process.terminate()
        for process in self._at.values():
            process.join(_PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()

    def _hear(self, worker: Connection) -> None:
        try:
            message = worker.recv()
        except (EOFError, OSError):
            process = self._at.pop(worker)
            del self._heard[worker]
            process.join(_PATIENCE_SECONDS)
            self._employer.bury(worker, process.exitcode)
            return
        self._heard[worker] = time.monotonic()
        self._employer.hear(worker, message)


def obituary(code: int | None) -> str:
    """Return how a worker died, in words."""
    if code is not None and code < 0:
        return f"a worker died of signal {-code} (exit code {code}); if memory ran out, use fewer --workers."
    return f"a worker died with exit code {code}; what it wrote on standard error may say why."


def never_began() -> str:
    """Return that a worker did not become ready in time, in words."""
    return (
        f"a worker was not ready after {LONGEST_START_SECONDS:g} seconds: a driver or a file system that "
        "does not answer may hold it; te-harness doctor runs without workers."
    )


def ending(code: int | None) -> str:
    """Return how a process ended, in words that are the same each time."""
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"{name}, or memory ran out" if name == "SIGKILL" else name


def _be_worker(work: Work, connection: Connection) -> None:
    # Ctrl-C reaches every process of the terminal; the supervisor alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    _end_with_parent()
    # Without a supervisor, nobody wants to know any more.
    with contextlib.suppress(EOFError, BrokenPipeError):
        work(connection)


def _end_with_parent() -> None:
    """End this process when its parent is gone, even while a case hangs."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
