"""The museum: bugs that Transformer Engine had, each with a case, and in which releases it fails.

What is known of them stands in ``museum.toml``, the cases in a folder of the corpus. Each case is judged
under Transformer Engine as installed, and what comes of it is held against what is known, release by release.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harness import case as c
from harness import corpus, releases
from harness.errors import HarnessFault, InvalidInput
from harness.survey import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FILE = Path(__file__).with_name("museum.toml")

TE_MODE = "installed"
"""A correction would hide what the museum shows."""

Found: TypeAlias = "dict[tuple[str, str], Row]"
"""What became of a bug's case, by the bug's id and the release."""


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Common settings of the structs below."""


class Failing(_Data, frozen=True):
    """Releases, "2.1.0" or "2.1.0 to 2.4.0", in which a case violates these promises and no others."""

    releases: str
    kinds: tuple[str, ...]


class Refusing(_Data, frozen=True):
    """Releases, told in the same way, that cannot run a case, and why."""

    releases: str
    reason: str


class Bug(_Data, frozen=True, kw_only=True):
    """A bug of Transformer Engine."""

    id: str
    title: str
    """What a user saw."""
    mechanism: str
    """Why it happened, with file and function."""
    reference: str
    """What upstream said: the change that fixed it."""
    case: str
    """The fingerprint of its case."""
    fails: tuple[Failing, ...]
    passes: tuple[str, ...]
    cannot_run: tuple[Refusing, ...] = ()

    def expected(self) -> list[Row]:
        """Return what must become of the case, for each release named, however often it is named."""
        rows = [
            Row(release, "violated", failing.kinds)
            for failing in self.fails
            for release in _range(failing.releases)
        ]
        rows += [Row(release, "held") for told in self.passes for release in _range(told)]
        return rows + [
            Row(release, "cannot run", reason=refusing.reason)
            for refusing in self.cannot_run
            for release in _range(refusing.releases)
        ]


class Difference(msgspec.Struct, frozen=True):
    """A case that did not come out under a release as is known of it."""

    bug: str
    expected: Row
    found: Row


class _File(_Data, frozen=True):
    bug: tuple[Bug, ...]


def _range(told: str) -> Iterator[str]:
    """Return the known releases from one to another."""
    first, _, last = told.partition(" to ")
    places = []
    for end in (first, last or first):
        if end not in releases.KNOWN:
            raise HarnessFault(f"{told!r}: {end!r} is no known release")
        places.append(releases.KNOWN.index(end))
    return iter(releases.KNOWN[places[0] : places[1] + 1])


def load(path: Path = FILE) -> tuple[Bug, ...]:
    """Return what is known of the bugs, in the order of the file.

    Raises HarnessFault where the file is wrong: above all where a bug does not say once, and only once, what
    becomes of its case under each known release.
    """
    try:
        bugs = msgspec.toml.decode(path.read_bytes(), type=_File).bug
    except msgspec.MsgspecError as error:
        raise HarnessFault(f"{path}: {error}") from error
    for name, number in Counter(name for bug in bugs for name in (bug.id, bug.case)).items():
        if number > 1:
            raise HarnessFault(f"{path}: {name} is there twice")
    for bug in bugs:
        told = Counter(row.release for row in bug.expected())
        wrong = [release for release in releases.KNOWN if told[release] != 1]
        if wrong:
            raise HarnessFault(f"{path}: {bug.id}: not told once, or told twice: {', '.join(wrong)}")
    return bugs


def load_cases(bugs: Sequence[Bug], folder: Path) -> list[c.Case]:
    """Return the case of each bug from a folder of saved cases.

    Raises InvalidInput where one is missing, or is not the one that the bug names.
    """
    cases = []
    for bug in bugs:
        path = folder / f"{bug.case}.json"
        case = corpus.load(path).case
        if case.fingerprint != bug.case:
            raise InvalidInput(f"{path}: this is another case, {case.fingerprint}.")
        cases.append(case)
    return cases


def differences(bugs: Sequence[Bug], found: Found) -> list[Difference]:
    """Return where what became of a case is not what is known, bug by bug, oldest release first."""
    return [
        Difference(bug.id, expected, found[bug.id, expected.release])
        for bug in bugs
        for expected in sorted(bug.expected(), key=lambda row: releases.KNOWN.index(row.release))
        if found[bug.id, expected.release] != expected
    ]
