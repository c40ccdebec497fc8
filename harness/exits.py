"""How a command ends: its exit codes, and an error as one line on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import click

from harness.errors import CannotRunHere, DeviceLost, HarnessError
from harness.files import NO_ROOM, printable

HELD, VIOLATED, USAGE, FAULT, INTERRUPTED = 0, 1, 2, 3, 130
_SIGPIPE = 141


class _NobodyReadsError(Exception):
    """Whoever reads the output has seen enough, like ``head``."""


class Group(click.Group):
    """Ends every command with the exit code that fits, and every error but a crash in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; click must not see that a pipe is broken, since it would end with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _NobodyReadsError from error
        except SystemExit as error:
            # So does Rich, where it meets a broken pipe.
            if isinstance(error.__context__, BrokenPipeError):
                raise _NobodyReadsError from error
            raise

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command and end the process."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except HarnessError as error:
            code = complain(str(error), error.exit_code)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            code = complain(f"{error.format_message()}{hint}", USAGE)
        except DeviceLost as lost:
            told = f"{lost} te-harness replay judges a case that does this in a process of its own."
            code = complain(told, VIOLATED)
        except (click.Abort, KeyboardInterrupt):
            code = complain("interrupted", INTERRUPTED)
        except ModuleNotFoundError as error:
            told = f"{error.name} is not installed: install this package with what it depends on."
            code = complain(told, CannotRunHere.exit_code)
        except OSError as error:
            code = _end_of(error)
        except _NobodyReadsError:
            _write_nothing_more()
            code = _SIGPIPE
        except BaseException:  # whatever else goes wrong is a fault of the harness, and is to be seen whole
            traceback.print_exc()
            code = FAULT
        sys.exit(code or HELD)


def _end_of(error: OSError) -> int:
    """Return the exit code for an error of the system, told in a line if it is none of the harness."""
    if error.filename is not None:
        return complain(f"{error.filename!s:.200}: {error.strerror}; give another path.", USAGE)
    if error.errno in NO_ROOM:
        _write_nothing_more()
        return complain(f"{error.strerror}: make room first.", CannotRunHere.exit_code)
    traceback.print_exception(error)
    return FAULT


def _write_nothing_more() -> None:
    # What could not be written, Python would try to write once more at its end, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str, code: int) -> int:
    """Write a message on standard error, on one line and printable, and return the code."""
    warn(message)
    return code


def warn(message: str) -> None:
    """Write a message on standard error, on one line and printable."""
    click.echo(f"te-harness: {printable(message)}", err=True)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let no warning through: odd cases make torch and TE utter many, and they would hide the report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
