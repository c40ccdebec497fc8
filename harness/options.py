"""Options that several commands share, and checks of what a person gives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from harness import releases


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


def release(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return a release of Transformer Engine as the package index spells it."""
    return None if value is None else releases.normalized(value)


PATH = click.Path(path_type=Path)
SEED = click.IntRange(0, 2**32 - 1)

backend_option = click.option(
    "--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="Where TE runs."
)
domain_option = click.option("--domain", default="contract", help="Which cases to draw.")


te_option = functools.partial(
    click.option,
    "--te",
    "te_mode",
    type=click.Choice(["corrected", "installed"]),
    help="Apply the fix to a TE that lacks it, or take TE as it is.",
)


def release_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add ``--release``, under which the command then runs; it needs ``--backend`` beside it."""

    @functools.wraps(command)
    def under_release(release: str | None, backend: str, **options: Any) -> int:
        if release is not None:
            if backend == "cuda":
                raise click.UsageError(
                    "--release goes with --backend cpu: what is fetched has no compiled extension."
                )
            releases.enter(release)
            backend = "cpu"
        return command(release=release, backend=backend, **options)

    return click.option(
        "--release",
        metavar="VERSION",
        callback=release,
        help="Run under this release of TE, fetched with pip, on the cpu backend.",
    )(under_release)


def target_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say what is tested, and where."""
    for option in (
        release_option,
        click.option("--checkpointer", metavar="MODULE:FUNCTION", help="Test this, not te.checkpoint."),
        te_option(default="corrected"),
        backend_option,
    ):
        command = option(command)
    return command
