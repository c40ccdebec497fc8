"""Shared finds: bounded in number, safe to read, lost by no race, and removed only where they are fixed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    InMemoryExampleDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)

from harness import case as c
from harness import corpus, finds
from harness.corpus import SavedCase, Seen
from harness.finds import PER_KIND, Finds, may_be_removed
from harness.violations import Violation
from tests.harness.commands import CASE

WHERE = {
    "backend": "cpu",
    "transformer_engine": "2.20.2",
    "te_mode": "corrected",
    "checkpointer": "te.checkpoint",
}
KEY = b"te-harness/1/contract"


def find(number: int = 1, oracle: str = "pairing", **where: str) -> SavedCase:
    """A find whose case grows with its number."""
    graph = c.Autocast(c.Chain((*(c.Region(c.Linear()) for _ in range(number)), c.Linear())))
    violation = msgspec.convert({"oracle": oracle, "message": "popped", "iteration": 0}, Violation)
    case = c.Case(graph=graph, schedule=CASE.schedule)
    return SavedCase(case=case, seen=Seen(violations=(violation,)), where={**WHERE, **where})


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def database() -> ExampleDatabase:
    return InMemoryExampleDatabase()


@pytest.fixture
def shared(database: ExampleDatabase, lines: list[str]) -> Finds:
    return Finds(database, lines.append)


def test_a_find_is_there_for_its_domain_small_ones_first_and_crashes_last(shared: Finds) -> None:
    crash = msgspec.structs.replace(find(1), seen=Seen(ending="SIGSEGV"))
    for saved in (crash, find(3), find(2), find(2)):
        shared.add("contract", saved)
    assert shared.of("contract") == [find(2), find(3), crash]
    assert shared.of("frontier") == []


def test_of_each_kind_and_origin_the_smallest_are_kept(shared: Finds) -> None:
    for number in (5, 2, 4, 1, 3):
        shared.add("contract", find(number))
        shared.add("contract", find(number, backend="cuda"))
        shared.add("contract", find(number, "FIFO drained"))
    kept = shared.of("contract")
    assert len(kept) == 3 * PER_KIND
    for backend in ("cpu", "cuda"):
        assert [saved for saved in kept if saved == find(1, backend=backend)]
        assert not [saved for saved in kept if saved == find(PER_KIND + 1, backend=backend)]


def test_a_database_does_not_grow_without_end(shared: Finds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finds, "MOST", 4)
    for number in range(1, 7):
        shared.add("contract", find(number, backend=f"backend {number}"))
    assert [saved.where["backend"] for saved in shared.of("contract")] == [
        f"backend {i}" for i in (1, 2, 3, 4)
    ]


def test_what_cannot_be_read_is_passed_over_with_a_line_and_stays(
    shared: Finds, database: ExampleDatabase, lines: list[str]
) -> None:
    newer = corpus.encode(find()).replace(b'"format": 1', b'"format": 99')
    strange = {b"", b"\xff\x00", b"[" * 100_000, b" " * (corpus.MAX_BYTES + 1), newer}
    for value in strange:
        database.save(KEY, value)
    shared.add("contract", find())
    assert shared.of("contract") == [find()]
    assert strange < set(database.fetch(KEY))
    assert lines == ["database: passed over what is no find that this version can read (5)."]


def test_what_is_removed_is_gone_except_from_what_is_only_read(
    database: ExampleDatabase, lines: list[str]
) -> None:
    mine, others = Finds(database, lines.append), InMemoryExampleDatabase()
    others.save(KEY, corpus.encode(find(2)))
    both = Finds(MultiplexedDatabase(database, ReadOnlyDatabase(others)), lines.append)
    both.add("contract", find(1))
    assert mine.of("contract") == [find(1)]
    assert both.of("contract") == [find(1), find(2)]
    assert both.remove("contract", find(1))
    assert not both.remove("contract", find(2))
    assert both.of("contract") == [find(2)]


def test_nothing_is_shared_without_a_database(lines: list[str]) -> None:
    nowhere = Finds(None, lines.append)
    nowhere.add("contract", find())
    assert nowhere.of("contract") == []
    assert not nowhere.remove("contract", find())
    assert not lines


@pytest.mark.parametrize(
    ("seen", "here", "may"),
    [
        ({}, {}, True),
        ({"transformer_engine": "2.9.0"}, {}, True),
        ({}, {"transformer_engine": "2.9.0"}, False),
        ({"transformer_engine": "unknown"}, {}, False),
        ({"backend": "cuda"}, {}, False),
        ({"te_mode": "installed"}, {}, False),
        ({"checkpointer": "mine:checkpoint"}, {}, False),
    ],
)
def test_only_what_is_judged_as_it_was_seen_is_fixed(
    seen: dict[str, Any], here: dict[str, str], may: bool
) -> None:
    assert may_be_removed(find(**seen), {**WHERE, **here}) is may


# --- Races -------------------------------------------------------------------------------------------


class Forgetful(InMemoryExampleDatabase):
    """Loses the first values that it is given, as a race with another process may."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self._left = lost

    def save(self, key: bytes, value: bytes) -> None:
        self._left -= 1
        if self._left < 0:
            super().save(key, value)


@pytest.mark.parametrize(("lost", "kept"), [(0, True), (2, True), (99, False)])
def test_a_find_that_is_lost_is_saved_again_and_in_the_end_complained_of(
    lost: int, kept: bool, lines: list[str]
) -> None:
    shared = Finds(Forgetful(lost), lines.append)
    shared.add("contract", find())
    assert shared.of("contract") == ([find()] if kept else [])
    assert lines == ([] if kept else [f"database: {find().case.fingerprint} could not be kept there."])


def test_many_at_once_over_one_folder_lose_nothing(tmp_path: Path, lines: list[str]) -> None:
    def come_and_go(number: int) -> None:
        shared = Finds(DirectoryBasedExampleDatabase(tmp_path / "finds"), lines.append)
        passing, staying = find(1, backend=f"passing {number}"), find(2, backend=f"staying {number}")
        shared.add("contract", passing)
        shared.add("contract", staying)
        assert shared.remove("contract", passing)

    with ThreadPoolExecutor(8) as pool:
        results: Iterable[None] = pool.map(come_and_go, range(24))
        assert len(list(results)) == 24
    there = Finds(DirectoryBasedExampleDatabase(tmp_path / "finds"), lines.append).of("contract")
    assert sorted(saved.where["backend"] for saved in there) == sorted(f"staying {i}" for i in range(24))
    assert not lines
