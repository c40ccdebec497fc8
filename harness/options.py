"""Options that several commands share, and checks of what a person gives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import releases
from harness.errors import InvalidInput
from harness.te_mode import is_te_mode

if TYPE_CHECKING:
    from strategies.domains import Domain

_DIGITS = 6
"""Of a number of workers, at most."""


def number_or_auto(_context: click.Context, _parameter: click.Parameter, value: str) -> int | None:
    """Return a number of workers; None stands for ``auto``."""
    if value == "auto":
        return None
    if not value.isdecimal() or len(value) > _DIGITS or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither auto nor a number from 1 on.")
    return int(value)


def finite(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    """Return a number of seconds; "nan" and "inf" are floats too, but no such number."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds.")
    return value


def shard_of(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, int]:
    """Return the I-th of N shards, from ``I/N``."""
    index, slash, of = value.partition("/")
    if not slash or not all(part.isdecimal() and len(part) <= _DIGITS for part in (index, of)):
        raise click.BadParameter(f"{value!r} is not of the form I/N.")
    if not 1 <= int(index) <= int(of):
        raise click.BadParameter(f"{value!r} is not one from 1/N to N/N.")
    return int(index), int(of)


def te_mode(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a TE mode."""
    if not is_te_mode(value):
        raise click.BadParameter(f"{value!r} is not one of corrected, installed and mutant:ID.")
    return value


def release(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return a release of Transformer Engine as the package index spells it."""
    return None if value is None else releases.normalized(value)


PATH = click.Path(path_type=Path)
SEED = click.IntRange(0, 2**32 - 1)

backend_option = click.option(
    "--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="Where TE runs."
)
case_timeout_option = click.option(
    "--case-timeout",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=120.0,
    help="Seconds after which a case is taken to hang.",
)
database_option = click.option(
    "--database",
    metavar="URL",
    help="Where finds are shared: a folder, redis://HOST:PORT/NUMBER, github:OWNER/REPO[/ARTIFACT] or none;"
    " TE_HARNESS_DATABASE if not given, else Hypothesis's own folder.",
)
domain_option = click.option("--domain", default="contract", help="Which cases to draw.")


te_option = functools.partial(
    click.option,
    "--te",
    "te_mode",
    metavar="MODE",
    callback=te_mode,
    help="corrected: the fix is applied to a TE that lacks it; installed: TE as it is;"
    " mutant:ID: corrected, with that fault planted.",
)


def release_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add ``--release``, under which the command then runs, and which it is told."""

    @functools.wraps(command)
    def under_release(release: str | None, **options: Any) -> int:
        if release is not None:
            if options["backend"] == "cuda":
                raise click.UsageError(
                    "--release goes with --backend cpu: what is fetched has no compiled extension."
                )
            releases.enter(release)
            options["backend"] = "cpu"
        return command(release=release, **options)

    return _release(under_release)


def cpu_release_option(command: Callable[..., int]) -> Callable[..., int]:
    """Add ``--release`` to a command that runs on the cpu backend only, and need not know."""

    @functools.wraps(command)
    def under_release(release: str | None, **options: Any) -> int:
        if release is not None:
            releases.enter(release)
        return command(**options)

    return _release(under_release)


_release = click.option(
    "--release",
    metavar="VERSION",
    callback=release,
    help="Run under this release of TE, fetched with pip, on the cpu backend.",
)


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


def domain_of(name: str) -> Domain:
    """Return the domain of that name; raises InvalidInput where there is none."""
    from strategies.domains import DOMAINS

    if name not in DOMAINS:
        raise InvalidInput(f"there is no domain {name!r}: choose one of {', '.join(sorted(DOMAINS))}.")
    return DOMAINS[name]
