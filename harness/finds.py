"""Finds that are shared: saved cases in an example database, under a key for each domain.

What lies there may come from strangers and from other versions of this package: it is read as a file is, and
what cannot be read is passed over.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from harness import corpus
from harness.database import Guarded
from harness.errors import InvalidInput
from harness.failure import signature_of, size_of
from harness.replay import judged_as, obstacle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.database import ExampleDatabase

    from harness.corpus import SavedCase
    from harness.database import Complain

PER_KIND = 3
"""Cases that are kept of each kind of failure: one that is small already may be fixed before another."""

MOST = 200
"""Cases that are kept of a domain; there are far fewer kinds, as long as nobody errs or means ill."""

_MOST_READ = 10_000
_ATTEMPTS = 3


class Finds:
    """The finds in a database.

    Args:
        database: where they lie; None for nowhere.
        complain: told in a line what goes wrong without ending the run.
    """

    def __init__(self, database: ExampleDatabase | None, complain: Complain) -> None:
        self._database = database
        self._complain = complain
        self._complained: set[str] = set()

    def of(self, domain: str) -> list[SavedCase]:
        """Return the finds of a domain, those that ended their process last, and small ones first."""
        found = self._read(domain)
        return sorted(found.values(), key=lambda saved: (bool(saved.seen.ending), size_of(saved.case)))

    def add(self, domain: str, saved: SavedCase) -> None:
        """Keep a find, unless there are enough smaller ones of its kind; larger ones than those go."""
        if self._database is None:
            return
        value = corpus.encode(saved)
        for _ in range(_ATTEMPTS):
            there = self._read(domain)
            surplus = _surplus({**there, value: saved})
            if value in there or value in surplus:
                for larger in surplus & there.keys():
                    self._database.delete(_key(domain), larger)
                return
            # What another process removes at this moment may take it along: so it is looked for again.
            self._database.save(_key(domain), value)
        if value not in self._read(domain) and not self._lost:
            self._say(f"database: {saved.case.fingerprint} could not be kept there.")

    def remove(self, domain: str, saved: SavedCase) -> bool:
        """Remove a find; return whether it is gone, which it is not where others' finds are only read."""
        if self._database is None:
            return False
        for value, other in self._read(domain).items():
            if other == saved:
                self._database.delete(_key(domain), value)
        return saved not in self._read(domain).values() and not self._lost

    @property
    def _lost(self) -> bool:
        """Whether the database has failed, and has said so itself."""
        return isinstance(self._database, Guarded) and self._database.lost

    def _read(self, domain: str) -> dict[bytes, SavedCase]:
        if self._database is None:
            return {}
        found: dict[bytes, SavedCase] = {}
        strange = 0
        for value in itertools.islice(self._database.fetch(_key(domain)), _MOST_READ):
            try:
                found[value] = corpus.decode(value)
            except InvalidInput:
                strange += 1
        if strange:
            self._say(f"database: passed over what is no find that this version can read ({strange}).")
        return found

    def _say(self, line: str) -> None:
        """Complain, but not of the same again."""
        if line not in self._complained:
            self._complained.add(line)
            self._complain(line)


def kind_seen(saved: SavedCase) -> str:
    """Return the kind of failure that a case was saved for; empty where nothing was seen."""
    if saved.seen.ending:
        return f"crash: {saved.seen.ending}"
    return signature_of(saved.seen.violations) if saved.seen.violations else ""


def may_be_removed(saved: SavedCase, where: Mapping[str, str]) -> bool:
    """Tell whether a find that holds is fixed: it was seen alike, and not in a newer release."""
    if obstacle(saved, where) is not None:
        return False
    try:
        return _release(saved.where) <= _release(where)
    except InvalidVersion:
        return False


def _release(where: Mapping[str, str]) -> Version:
    return Version(where.get("transformer_engine", ""))


def _key(domain: str) -> bytes:
    return f"te-harness/1/{domain}".encode()


def _surplus(found: Mapping[bytes, SavedCase]) -> set[bytes]:
    """Return the values that are too many: of their kind and origin, or of all."""
    numbers: Counter[object] = Counter()
    kept = 0
    surplus = set()
    for value, saved in sorted(found.items(), key=lambda item: (size_of(item[1].case), item[0])):
        group = (kind_seen(saved), judged_as(saved.where), saved.where.get("transformer_engine"))
        if numbers[group] == PER_KIND or kept == MOST:
            surplus.add(value)
        else:
            numbers[group] += 1
            kept += 1
    return surplus
