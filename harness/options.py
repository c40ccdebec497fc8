"""Options that several commands share, and checks of what a person gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def number_or_auto(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    """Return a number of workers; None stands for ``auto``."""
    if value == "auto":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither auto nor a number from 1 on.")
    return int(value)


def finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """Return a number of seconds; "nan" and "inf" are floats too, but no such number."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds.")
    return value


PATH = click.Path(path_type=Path)
SEED = click.IntRange(0, 2**32 - 1)

backend_option = click.option(
    "--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="Where TE runs."
)
domain_option = click.option("--domain", default="contract", help="Which cases to draw.")


def target_options(command: _Command) -> _Command:
    """Add the options that say what is tested, and where."""
    for option in (
        click.option("--checkpointer", metavar="MODULE:FUNCTION", help="Test this, not te.checkpoint."),
        click.option(
            "--te",
            "te_mode",
            type=click.Choice(["corrected", "installed"]),
            default="corrected",
            help="Apply the fix to a TE that lacks it, or take TE as it is.",
        ),
        backend_option,
    ):
        command = option(command)
    return command
