"""Why mutants survive: a file of reasons, held against what a campaign saw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from harness.errors import HarnessFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.trial import Trial

FILE = Path(__file__).with_name("survivors.toml")

Kind: TypeAlias = Literal["equivalent", "outside"]


class Survivor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why one mutant survives under one release of TE.

    ``alike`` says that it changes both runs in the same way, which a campaign must see of the direct one.
    """

    mutant: str
    release: str
    kind: Kind
    reason: str
    alike: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    survivor: list[Survivor] = []


def load(release: str, path: Path = FILE) -> dict[str, Survivor]:
    """Return what is known of a release's survivors, by mutant."""
    try:
        entries = msgspec.toml.decode(path.read_bytes(), type=_File).survivor
    except msgspec.MsgspecError as error:
        raise HarnessFault(f"{path}: {error}") from error
    found: dict[str, Survivor] = {}
    for entry in entries:
        if entry.release == release:
            if entry.mutant in found:
                raise HarnessFault(f"{path}: {entry.mutant} has two entries")
            found[entry.mutant] = entry
    return found


def complaints(
    trials: Mapping[str, Trial], known: Mapping[str, Survivor], all_mutants: Iterable[str]
) -> list[str]:
    """Return what is wrong with the reasons: none for a survivor, or one for what was killed or is none."""
    found = []
    for name, trial in trials.items():
        if trial.outcome == "killed":
            if name in known:
                found.append(f"{name}: explained as {known[name].kind}, and killed by {', '.join(trial.by)}")
        elif name not in known:
            found.append(f"{name}: {trial.outcome}, and not explained")
        elif known[name].alike and not trial.changes_direct:
            found.append(f"{name}: explained as changing both runs, and direct execution does not change")
        elif known[name].kind == "equivalent" and trial.changes_direct:
            found.append(f"{name}: explained as equivalent, and direct execution changes")
    found += [
        f"{name}: explained, and no mutant of this release" for name in sorted({*known} - {*all_mutants})
    ]
    return found
