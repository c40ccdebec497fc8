"""One setting opens the example database; none of its kinds costs anybody a run, or tells a password."""

from __future__ import annotations

import contextlib
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from urllib.error import URLError

import hypothesis
import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from harness import database
from harness.database import VARIABLE, open_database
from harness.errors import CannotRunHere, HarnessError, InvalidInput
from harness.files import cache_folder
from tests.harness.redis_server import RedisServer, redis_server

SECRET = "hunter2"  # noqa: S105


@pytest.fixture
def lines() -> list[str]:
    """What a database complained of."""
    return []


def opened(setting: str, lines: list[str]) -> ExampleDatabase:
    shared = open_database(setting, lines.append)
    assert shared is not None
    return shared


# --- Folders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "directory:{}"])
def test_a_folder_is_named_by_its_path(tmp_path: Path, lines: list[str], form: str) -> None:
    shared = opened(form.format(tmp_path / "a:b"), lines)
    shared.save(b"key", b"value")
    assert set(DirectoryBasedExampleDatabase(tmp_path / "a:b").fetch(b"key")) == {b"value"}
    assert not lines


def test_the_option_wins_over_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    assert opened("", lines) == DirectoryBasedExampleDatabase(tmp_path / "other")
    assert opened(str(tmp_path), lines) == DirectoryBasedExampleDatabase(tmp_path)
    assert open_database("none", lines.append) is None


def test_hypothesis_keeps_its_own_folder_where_nothing_is_set(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.delenv(VARIABLE)
    shared = open_database(None, lines.append)
    assert isinstance(shared, DirectoryBasedExampleDatabase)
    assert shared == hypothesis.settings.get_profile("default").database


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("/dev/null/finds", "/dev/null is not a folder"),
        (f"mysql://user:{SECRET}@host/1", "nothing is known of mysql: give a folder, redis://"),
        (f"user:{SECRET}@host", "nothing is known of user"),
        (f"redis://user:{SECRET}/@host", "a Redis URL is redis://"),
        (f"redis://:{SECRET}@host/finds", "a Redis URL is redis://"),
        (f"redis://:{SECRET}@/0", "a Redis URL is redis://"),
        (f"redis://:{SECRET}@localhost/0?spam=1", "a Redis URL is redis://"),
        ("github:owner", "is not of the form OWNER/REPO"),
        ("github:owner/../x", "is not of the form OWNER/REPO"),
        ("github:owner/repo/a/b", "is not of the form OWNER/REPO"),
    ],
)
def test_what_cannot_be_opened_is_said_without_the_password(
    setting: str, words: str, lines: list[str]
) -> None:
    if "spam" in setting:
        pytest.importorskip("redis")
    with pytest.raises(InvalidInput) as caught:
        open_database(setting, lines.append)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


# --- A Redis server ----------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


def test_without_the_client_a_server_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(CannotRunHere, match="pip install redis"):
        open_database("redis://localhost", lines.append)


def test_a_server_that_is_not_there_is_missed_at_once(server: RedisServer, lines: list[str]) -> None:
    server.kill()
    with pytest.raises(CannotRunHere, match="does not answer") as caught:
        open_database(f"redis://:{SECRET}@127.0.0.1:{server.port}/0", lines.append)
    assert SECRET not in str(caught.value)


def test_a_password_opens_and_is_told_by_nobody(tmp_path: Path, lines: list[str]) -> None:
    with redis_server(tmp_path, "--requirepass", SECRET) as server:
        shared = opened(server.url.replace("//", f"//:{SECRET}@"), lines)
        shared.save(b"key", b"value")
        assert list(shared.fetch(b"key")) == [b"value"]
        assert SECRET not in repr(shared)
        for url in (server.url, server.url.replace("//", f"//:{SECRET}3@")):
            with pytest.raises(HarnessError, match="does not answer") as caught:
                open_database(url, lines.append)
            assert SECRET not in str(caught.value)


def tried(database: ExampleDatabase, phase: Phase) -> list[int]:
    """Let Hypothesis test that all numbers are small, in one phase; return what it tried."""
    numbers: list[int] = []

    @hypothesis.settings(database=database, phases=[phase, Phase.shrink], deadline=None)
    @hypothesis.given(st.integers())
    def are_small(number: int) -> None:
        numbers.append(number)
        assert number < 1000

    with contextlib.suppress(AssertionError):
        are_small()
    return numbers


def test_what_hypothesis_finds_on_one_machine_it_replays_on_another(
    server: RedisServer, lines: list[str]
) -> None:
    assert 1000 in tried(opened(server.url, lines), Phase.generate)
    assert tried(opened(server.url, lines), Phase.reuse)[0] == 1000


def test_a_server_that_is_lost_is_missed_in_one_line(server: RedisServer, lines: list[str]) -> None:
    shared = opened(server.url, lines)
    shared.save(b"key", b"value")
    server.kill()
    shared.save(b"key", b"other")
    assert list(shared.fetch(b"key")) == []
    shared.delete(b"key", b"value")
    shared.move(b"key", b"other key", b"value")
    (line,) = lines
    assert line.startswith(f"{server.url}: ")
    assert line.endswith("; it is left out from now on.")


# --- Artifacts of GitHub -----------------------------------------------------------------------------


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which artifacts are kept for a day; there is no network."""

    def unreachable(*_arguments: object, **_options: object) -> None:
        raise URLError("no network")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    own = DirectoryBasedExampleDatabase(tmp_path / "own")
    monkeypatch.setattr(database, "_own", lambda _complain: own)
    folder = cache_folder() / "github-artifacts" / "owner" / "repo" / "nightly"
    folder.mkdir(parents=True)
    return folder


def now() -> str:
    """What an artifact is called that is fetched at this moment."""
    return datetime.now(timezone.utc).isoformat().replace(":", "_")


def put(folder: Path, name: str, artifact: Path) -> None:
    """Make an artifact of a folder."""
    with zipfile.ZipFile(artifact / f"{name}.zip", "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder))


def test_an_artifact_is_read_and_the_own_folder_written(
    artifacts: Path, tmp_path: Path, lines: list[str]
) -> None:
    DirectoryBasedExampleDatabase(tmp_path / "nightly").save(b"key", b"nightly's")
    put(tmp_path / "nightly", now(), artifacts)
    before = {path: path.read_bytes() for path in artifacts.iterdir()}
    shared = opened("github:owner/repo/nightly", lines)
    shared.save(b"key", b"mine")
    shared.delete(b"key", b"nightly's")
    assert sorted(shared.fetch(b"key")) == [b"mine", b"nightly's"]
    shared.delete(b"key", b"mine")
    assert sorted(shared.fetch(b"key")) == [b"nightly's"]
    assert {path: path.read_bytes() for path in artifacts.iterdir()} == before
    assert not lines


def test_without_network_the_last_artifact_is_taken(
    artifacts: Path, tmp_path: Path, lines: list[str]
) -> None:
    DirectoryBasedExampleDatabase(tmp_path / "nightly").save(b"key", b"nightly's")
    put(tmp_path / "nightly", "2026-01-01T00_00_00+00_00", artifacts)
    assert list(opened("github:owner/repo/nightly", lines).fetch(b"key")) == [b"nightly's"]
    (line,) = lines
    assert "Using an expired artifact" in line


def test_without_network_and_token_an_artifact_is_missed_in_one_line(
    artifacts: Path, tmp_path: Path, lines: list[str]
) -> None:
    shared = opened("github:owner/repo/nightly", lines)
    assert list(shared.fetch(b"key")) == []
    shared.save(b"key", b"mine")
    assert list(shared.fetch(b"key")) == [b"mine"]
    (line,) = lines
    assert line.startswith("github:owner/repo/nightly: Could not connect to GitHub")
    assert line.endswith("GITHUB_TOKEN is not set.")
    assert list(artifacts.iterdir()) == []
    assert (tmp_path / "own").is_dir()


@pytest.mark.parametrize("name", ["", "not a time"])
def test_an_artifact_that_is_none_is_missed_in_one_line(
    artifacts: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    (artifacts / f"{name or now()}.zip").write_bytes(b"not an archive")
    assert list(opened("github:owner/repo/nightly", lines).fetch(b"key")) == []
    (line,) = lines
    assert line.startswith("github:owner/repo/nightly: ")
    assert SECRET not in line
