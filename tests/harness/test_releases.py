"""Releases are fetched whole or not at all, and a command runs under one as if it were installed."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness import case as c
from harness import releases
from harness.cli import main
from harness.errors import CannotRunHere, HarnessFault, InvalidInput
from harness.releases import IndexUnreachable
from harness.target import Target
from tests.harness.fetched import INSTALLED, build_wheel, cache_installed

ROOT = Path(__file__).parents[2]
CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point pip at a folder of wheels and at nothing else, and the cache at another."""
    folder = tmp_path / "wheels"
    build_wheel(folder, "2.19.0")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def tree(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def forbid_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_arguments: object) -> Path:
        raise AssertionError("pip was called")

    monkeypatch.setattr(releases, "_download", download)


# --- Names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("2.19.0", "2.19.0"), ("2.19", "2.19.0"), (" v2.19.0\n", "2.19.0"), ("2.6.0.post1", "2.6.0.post1"),
        ("2.6-1", "2.6.0.post1"), ("3.0RC1", "3.0.0rc1"), ("2.20.2.1", "2.20.2.1"),
    ],
)  # fmt: skip
def test_a_release_has_one_spelling(given: str, meant: str) -> None:
    assert releases.normalized(given) == meant


@pytest.mark.parametrize(
    "given",
    [
        "", "latest", "--index-url=x", "-r", "2.19.0 --pre", "2.19.0,<3", "../2.19.0", "2.19.0/..", "2.19.*",
        "a.whl", "https://example.org/a.whl", "1!2.19.0", "2.19.0+mine", "2." + "1" * 31, "2.1\x1b[31m",
    ],
)  # fmt: skip
def test_what_is_no_release_never_reaches_pip(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_pip(monkeypatch)
    with pytest.raises(
        InvalidInput, match=r"is no release of Transformer Engine; give one like 2\.19\.0"
    ) as e:
        releases.normalized(given)
    assert str(e.value).isprintable()
    result = CliRunner().invoke(main, ["doctor", f"--release={given}"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_the_known_releases_are_in_order_and_spelt_as_asked_for() -> None:
    assert list(releases.KNOWN) == releases.ordered(set(releases.KNOWN))
    assert [releases.normalized(release) for release in releases.KNOWN] == list(releases.KNOWN)


# --- The cache ---------------------------------------------------------------------------------------


def test_a_release_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = releases.fetch("2.19.0")
    assert folder == tmp_path / "cache" / "te-harness" / "releases" / "2.19.0"
    assert (folder / "transformer_engine" / "__init__.py").read_text() == "release = '2.19.0'\n"
    assert [path.name for path in folder.parent.iterdir()] == ["2.19.0"]
    before = tree(tmp_path)
    forbid_pip(monkeypatch)
    assert releases.fetch("2.19.0") == folder
    assert tree(tmp_path) == before, "a cache that is filled may be read-only"


def test_any_number_may_fetch_at_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(releases.fetch, ["2.19.0"] * 4))
    (folder,) = folders
    assert releases.is_cached("2.19.0")
    assert [path.name for path in folder.parent.iterdir()] == ["2.19.0"]


def test_a_release_is_never_seen_half_written(index: Path) -> None:
    build_wheel(index, "2.19.0", parts=500)
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(releases.fetch, "2.19.0")
        while not fetched.done():
            releases.is_cached("2.19.0")  # raises for one that is not whole
        assert fetched.result().is_dir()


def test_who_comes_second_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    download = releases._download
    seen: list[dict[str, int]] = []

    def overtaken(release: str, folder: Path) -> Path:
        wheel = download(release, folder)
        monkeypatch.setattr(releases, "_download", download)
        seen.append(tree(releases.fetch(release)))
        return wheel

    monkeypatch.setattr(releases, "_download", overtaken)
    assert tree(releases.fetch("2.19.0")) == seen[0]


def test_what_was_killed_half_way_is_never_used() -> None:
    code = (
        "import os, zipfile; from harness import releases\n"
        "def half(self, path):\n"
        "    self.extract(self.namelist()[0], path)\n"
        "    os.kill(os.getpid(), 9)\n"
        "zipfile.ZipFile.extractall = half\n"
        "releases.fetch('2.19.0')"
    )
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60)  # noqa: S603
    assert killed.returncode == -signal.SIGKILL
    (left,) = releases.folder_of("2.19.0").parent.iterdir()
    assert left.name.startswith(".2.19.0."), "this is what a killed process leaves"
    assert not releases.is_cached("2.19.0")
    assert releases.fetch("2.19.0").is_dir()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "transformer_engine" / "__init__.py").unlink(),
        lambda folder: (folder / "transformer_engine" / "__init__.py").write_text(""),
        lambda folder: (folder / "transformer_engine-2.19.0.dist-info" / "RECORD").unlink(),
        lambda folder: (folder / "transformer_engine-2.19.0.dist-info" / "RECORD").write_text(""),
        lambda folder: (folder / "transformer_engine-2.19.0.dist-info" / "RECORD").write_bytes(b"\0\xff"),
    ],
)
def test_a_release_with_a_hole_is_refused(damage: Callable[[Path], Any]) -> None:
    folder = releases.fetch("2.19.0")
    damage(folder)
    with pytest.raises(CannotRunHere, match="is not whole; remove the folder"):
        releases.fetch("2.19.0")


def test_a_release_that_does_not_exist_is_bad_input() -> None:
    with pytest.raises(InvalidInput, match=r"no release 2\.99\.0 .* known are 2\.1\.0, .*, 2\.20\.2[,.]"):
        releases.fetch("2.99.0")


def test_without_an_index_nothing_is_fetched(index: Path) -> None:
    next(index.iterdir()).unlink()
    with pytest.raises(IndexUnreachable, match="not in the cache, and pip reaches no package index"):
        releases.fetch("2.19.0")
    assert IndexUnreachable.exit_code == 125


def test_an_unknown_release_is_tried(index: Path) -> None:
    build_wheel(index, "2.99.0")
    assert releases.fetch("2.99.0").is_dir()


def test_without_pip_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(CannotRunHere, match=r"there is no pip to fetch it with: .* -m ensurepip"):
        releases.fetch("2.19.0")


def test_what_pip_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "perhaps")
    with pytest.raises(CannotRunHere, match=r"pip does not fetch Transformer Engine 2\.19\.0: ") as caught:
        releases.fetch("2.19.0")
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("PIP_REQUIRE_VIRTUALENV")
    (wheel,) = index.iterdir()
    wheel.write_bytes(wheel.read_bytes()[:200])
    with pytest.raises(CannotRunHere, match=r"Transformer Engine 2\.19\.0: "):
        releases.fetch("2.19.0")


def test_a_cache_without_room_is_said(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CannotRunHere, match="set XDG_CACHE_HOME to another folder"):
        releases.fetch("2.19.0")


# --- Running under a release -------------------------------------------------------------------------


def test_a_release_comes_before_what_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "mine")
    places = releases.start_environment("2.19.0")["PYTHONPATH"].split(os.pathsep)
    assert places[0] == str(releases.folder_of("2.19.0"))
    assert places[-1] == "mine"
    monkeypatch.delenv("PYTHONPATH")
    assert "" not in releases.start_environment("2.19.0")["PYTHONPATH"].split(os.pathsep)


def test_installed_packages_do_not_come_before_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(releases, "_ROOT", Path(site.getsitepackages()[0]))
    assert releases.start_environment("2.19.0")["PYTHONPATH"] == str(releases.folder_of("2.19.0"))


def test_a_command_does_not_start_over_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TE_HARNESS_STARTED", "2.19.0")
    with pytest.raises(HarnessFault, match="though it comes first"):
        releases.enter("2.19.0")
    assert "TE_HARNESS_STARTED" not in os.environ


def test_the_cuda_backend_is_not_for_what_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_pip(monkeypatch)
    for command in (["fuzz"], ["replay", "x"], ["record", "x"], ["doctor"]):
        result = CliRunner().invoke(main, [*command, "--release", "2.19.0", "--backend", "cuda"])
        assert "has no compiled extension" in result.stderr
        assert result.exit_code == 2


def test_the_command_that_replays_names_the_release() -> None:
    target = Target(backend="cpu", te_mode="installed", release="2.19.0")
    assert target.replay_command(Path("a.json")).endswith("a.json --te installed --release 2.19.0")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command from a folder in which a Transformer Engine of somebody's own lies."""
    (folder / "transformer_engine").mkdir()
    (folder / "transformer_engine" / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "harness", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("option", [["--release", INSTALLED], [f"--release={INSTALLED}"]])
def test_a_command_runs_under_a_release(option: list[str], tmp_path: Path) -> None:
    folder = cache_installed()
    (tmp_path / "mine.py").write_text(
        "import transformer_engine\n"
        "def refuses(*_arguments, **_options):\n"
        "    raise ValueError(transformer_engine.__file__)\n"
    )
    (tmp_path / "case.json").write_bytes(c.encode(CASE))
    done = run(tmp_path, "replay", *option, "--checkpointer", "mine:refuses", "--", "case.json")
    assert done.returncode == 1, done.stderr
    assert f"ValueError: {folder}" in done.stdout
    assert done.stderr == ""


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    cache_installed()
    (tmp_path / "mine.py").write_text(
        "import os, signal\n"
        "def ends_the_campaign(*_arguments, **_options):\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"
    )
    options = ["--release", INSTALLED, "--checkpointer", "mine:ends_the_campaign", "--workers", "1"]
    done = run(tmp_path, "fuzz", *options, "--seed", "1", "--cases", "1000")
    assert done.returncode == 130, "the campaign is told, and ends as one that is interrupted"
    assert "Traceback" not in done.stderr
