"""Options that several commands share, and checks of what a person gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.te_mode import is_te_mode

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


def te_mode(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a TE mode."""
    if not is_te_mode(value):
        raise click.BadParameter(f"{value!r} is not one of corrected, installed and mutant:ID.")
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
            metavar="MODE",
            callback=te_mode,
            default="corrected",
            help="corrected: the fix is applied to a TE that lacks it; installed: TE as it is;"
            " mutant:ID: corrected, with that fault planted.",
        ),
        backend_option,
    ):
        command = option(command)
    return command
