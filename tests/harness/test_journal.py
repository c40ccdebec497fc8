"""What a campaign has finished is on the disk at once, and is found again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.journal import Journal


class Line(msgspec.Struct, frozen=True):
    number: int


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def journal(key: object = "key") -> Journal[Line]:
    return Journal("test", key, Line)


def test_a_line_is_on_the_disk_as_soon_as_it_is_added() -> None:
    with journal() as writing:
        writing.add(Line(1))
        with journal() as reading:
            assert reading.lines == [Line(1)]


def test_lines_of_another_campaign_are_not_found() -> None:
    with journal("mine") as mine:
        mine.add(Line(1))
    with journal("yours") as yours:
        assert yours.lines == []


def test_a_line_that_was_cut_off_is_passed_over_and_the_next_one_is_whole() -> None:
    with journal() as first:
        first.add(Line(1))
    first.path.write_bytes(first.path.read_bytes() + b'{"num')
    with journal() as second:
        assert second.lines == [Line(1)]
        second.add(Line(2))
    with journal() as third:
        assert third.lines == [Line(1), Line(2)]


def test_at_its_end_a_campaign_is_forgotten() -> None:
    with journal() as ending:
        ending.add(Line(1))
        ending.forget()
    assert not ending.path.exists()
