"""What pytest's command line asked of the harness."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.target import Target
from harness.te_mode import is_te_mode


@dataclass(frozen=True)
class Options:
    """The options of a run. ``cases`` is the number for each property, None the profile's."""

    target: Target
    cases: int | None
    seconds: float | None
    """How long the properties draw, all together and in all workers."""
    seed: int
    corpus: Path
    case_timeout: float
    events: Path | None
    """A folder in which the run is recorded; None for nowhere."""
    replay: tuple[Path, ...]


OPTIONS = pytest.StashKey[Options]()


def add_options(parser: pytest.Parser) -> None:
    """Add the harness's options to pytest's."""
    group = parser.getgroup("te-harness", "FP8 activation checkpointing")
    group.addoption("--backend", choices=("auto", "cpu", "cuda"), default="auto", help="where TE runs")
    group.addoption(
        "--te",
        type=_te_mode,
        metavar="MODE",
        default="corrected",
        help="corrected: apply the fix to a TE that lacks it; installed: take TE as it is;"
        " mutant:ID: corrected, with that fault planted",
    )
    group.addoption("--cases", type=_positive, help="cases per property, over all shards")
    group.addoption(
        "--seconds",
        type=_duration,
        help="draw cases for so long, however many; all properties together",
    )
    group.addoption("--checkpointer", metavar="MODULE:FUNCTION", help="test this instead of te.checkpoint")
    group.addoption("--seed", type=int, help="seed of the properties; printed in the header")
    group.addoption("--corpus", type=Path, default=Path("corpus"), help="where failing cases are saved")
    group.addoption(
        "--database",
        metavar="URL",
        help="Hypothesis's example database: a folder, redis://HOST:PORT/NUMBER, github:OWNER/REPO[/ARTIFACT]"
        " or none; TE_HARNESS_DATABASE if not given",
    )
    group.addoption(
        "--case-timeout", type=_duration, default=120.0, help="seconds after which a case is taken to hang"
    )
    group.addoption("--events", type=Path, help="a folder in which what happens is recorded, for a report")
    group.addoption(
        "--replay",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="instead of any test, judge saved cases again: a file, a folder, or a fingerprint",
    )


def options_of(config: pytest.Config, seed: int) -> Options:
    """Return what was asked for, as data."""
    events = config.getoption("--events")
    return Options(
        target=Target(
            backend=config.getoption("--backend"),
            te_mode=config.getoption("--te"),
            checkpointer=config.getoption("--checkpointer"),
        ),
        cases=config.getoption("--cases"),
        seconds=config.getoption("--seconds"),
        seed=seed,
        corpus=config.rootpath / config.getoption("--corpus"),
        case_timeout=config.getoption("--case-timeout"),
        events=None if events is None else config.rootpath / events,
        replay=tuple(config.getoption("--replay")),
    )


def _te_mode(text: str) -> str:
    if not is_te_mode(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of corrected, installed and mutant:ID")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
