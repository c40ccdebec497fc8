"""Commands that a night runs: one at a time, each with a time limit, and none outliving the job."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
# What the scripts import of the harness is what its commands run: the checkout's own.
sys.path.insert(0, str(ROOT))

LIMIT_PASSED = 124
"""The status of a command that was ended by its time limit, as of ``timeout``."""

_GRACE = 60.0
"""Seconds that a command has to end by itself once its limit has passed: pytest then writes its report."""
_SHORT_GRACE = 4.0
"""The same once the job is to end: who stops a job kills what is left after ten seconds."""


class Children:
    """Runs commands from the repository's root, each in a process group of its own.

    Once the job is asked to end (SIGTERM, SIGINT) the command under way is interrupted, and only those of
    which ``needed`` is said are started any more: what has been found is still to be written.
    """

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        self._child: subprocess.Popen[str] | None = None
        self._killer: threading.Timer | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def run(self, command: list[str], log: Path | None, limit: float, *, needed: bool = False) -> int | None:
        """Run a command, copy what it says to a log and to our output, and return its status.

        The status is 128 and more for one that a signal ended, and None for one that was not started. A
        command without a log says nothing here but for its errors.
        """
        if self.stopped_by is not None and not needed:
            return None
        print(f"+ {shlex.join(command)}", flush=True)
        passed = threading.Event()
        child = subprocess.Popen(  # noqa: S603
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if log is None else subprocess.PIPE,
            stderr=None if log is None else subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._child = None if needed else child
        if self.stopped_by is not None and not needed:
            self._end(child, _SHORT_GRACE)
        timer = self._limit(child, limit, passed)
        copier = threading.Thread(target=_copy, args=(child, log), daemon=True)
        copier.start()
        status = child.wait()
        timer.cancel()
        self._child = None
        if self._killer is not None:
            # Its number may be another's soon.
            self._killer.cancel()
        # What it has started may outlive it, and hold on to what the copier reads.
        _signal(child, signal.SIGKILL)
        copier.join()
        if passed.is_set():
            return LIMIT_PASSED
        return status if status >= 0 else 128 - status

    def _limit(
        self, child: subprocess.Popen[str], seconds: float, passed: threading.Event
    ) -> threading.Timer:
        def end() -> None:
            passed.set()
            self._end(child, _GRACE)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        return timer

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        first = self.stopped_by is None
        self.stopped_by = number
        if first and self._child is not None:
            self._end(self._child, _SHORT_GRACE)

    def _end(self, child: subprocess.Popen[str], grace: float) -> None:
        """Interrupt a command and all that it has started, and kill what is left of them later."""
        _signal(child, signal.SIGINT)
        self._killer = threading.Timer(grace, _signal, (child, signal.SIGKILL))
        self._killer.daemon = True
        self._killer.start()


def _copy(child: subprocess.Popen[str], log: Path | None) -> None:
    """Copy what a command says to its log and to our output, line by line."""
    if log is None or child.stdout is None:
        return
    with log.open("a", encoding="utf-8") as copy:
        for line in child.stdout:
            copy.write(line)
            copy.flush()
            # Nobody may be left to read it; the log is what counts.
            with contextlib.suppress(OSError):
                print(line, end="", flush=True)


def _signal(child: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def harness(*arguments: object) -> list[str]:
    """Return the command line of one of the harness's commands."""
    return [sys.executable, "-m", "harness", *map(str, arguments)]
