"""Releases of Transformer Engine: fetched through pip into a cache, and any of our commands run under one.

The wheel ``transformer-engine`` of a release is pure Python, so unpacking it is installing it. A command
runs under a release by starting over in the same process: Python is executed anew with the unpacked
wheel in front of everything else. Streams, terminal, signals and exit code are then the command's own.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import site
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness import files
from harness.errors import CannotRunHere, HarnessFault, InvalidInput

KNOWN = (
    "2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.6.0.post1", "2.7.0", "2.8.0", "2.9.0", "2.10.0",
    "2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.14.1", "2.15.0", "2.16.0", "2.16.1", "2.17.0", "2.17.1",
    "2.18.0", "2.19.0", "2.20.2",
)  # fmt: skip
"""The releases that there are, oldest first. Others may be asked for and are tried."""

_LONGEST_VERSION = 32
_ROOT = Path(__file__).absolute().parents[1]
_STARTED = "TE_HARNESS_STARTED"
"""Set from the moment a command starts over until it has: it must not do so twice."""
_START = (
    "import sys; sys.path[:] = filter(None, sys.path); del sys.argv[0]; from harness.cli import main; main()"
)
"""Runs a command as ``-m harness`` would, but never imports from the current folder: somebody who works in
a checkout of Transformer Engine would get that."""


class IndexUnreachable(CannotRunHere):
    """pip found no release at all: no network, no index, or a proxy in between."""


# --- Names -------------------------------------------------------------------------------------------


def normalized(text: str) -> str:
    """Return a release as the package index spells it: "2.19" is "2.19.0".

    Raises InvalidInput for what is not a version, so that pip is handed nothing else.
    """
    try:
        version = Version(text[: _LONGEST_VERSION + 1])
    except InvalidVersion:
        version = None
    if version is None or len(text) > _LONGEST_VERSION or version.epoch or version.local:
        raise InvalidInput(
            f"{files.quoted(text)!r} is no release of Transformer Engine; give one like 2.19.0."
        )
    missing = 3 - len(version.release)
    release = ".".join(map(str, (*version.release, *[0] * missing)))
    return release + str(version).removeprefix(version.base_version)


def ordered(releases: set[str]) -> list[str]:
    """Return releases, oldest first."""
    return sorted(releases, key=Version)


# --- The cache ---------------------------------------------------------------------------------------


def folder_of(release: str) -> Path:
    """Return where a release lies, or would lie, unpacked."""
    return files.cache_folder() / "releases" / release


def is_cached(release: str) -> bool:
    """Return whether a release lies in the cache.

    Raises CannotRunHere where a part of it is missing: some machines purge files that nobody has read for
    long, and a release with a hole in it would fail in odd ways.
    """
    folder = folder_of(release)
    if not folder.is_dir():
        return False
    if not _complete(folder):
        raise CannotRunHere(f"{folder}: this release is not whole; remove the folder, then try again.")
    return True


def _complete(folder: Path) -> bool:
    """Return whether all is there that the wheel's list of files names, in full size."""
    records = list(folder.glob("transformer_engine-*.dist-info/RECORD"))
    if len(records) != 1:
        return False
    try:
        with records[0].open(newline="", encoding="utf-8") as rows:
            listed = [(name, int(size) if size else None) for name, _, size in csv.reader(rows)]
    except (ValueError, csv.Error):
        return False
    return any(name == "transformer_engine/__init__.py" for name, _ in listed) and all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in listed
        if size is not None
    )


def fetch(release: str) -> Path:
    """Return the folder of a release, to be put in front on ``PYTHONPATH``; fetch it first if need be.

    A release that is cached is taken as it is, without pip. Any number of processes may fetch at once: each
    unpacks for itself, and the first to finish gives the folder its name.

    Raises:
        InvalidInput: the package index has no such release.
        CannotRunHere: there is no pip, no package index or no room, or what is cached is not whole.
    """
    folder = folder_of(release)
    if is_cached(release):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{release}.", dir=folder.parent) as temporary:
            unpacked = Path(temporary) / "unpacked"
            with zipfile.ZipFile(_download(release, Path(temporary))) as wheel:
                wheel.extractall(unpacked)
            _publish(unpacked, folder)
    except zipfile.BadZipFile as error:
        raise CannotRunHere(
            f"pip brought no usable wheel of Transformer Engine {release}: {error}."
        ) from error
    except OSError as error:
        told = f"{folder}: cannot be written ({error.strerror or error})"
        raise CannotRunHere(f"{told}; make room, or set XDG_CACHE_HOME to another folder.") from error
    return folder


def _publish(unpacked: Path, folder: Path) -> None:
    """Give an unpacked release its name, in one step; where another process was faster, its copy stands."""
    if not _complete(unpacked):
        raise CannotRunHere(f"pip brought no whole wheel of Transformer Engine {folder.name}; try again.")
    try:
        unpacked.rename(folder)
    except OSError:
        if not folder.is_dir() or not _complete(folder):
            raise


def _download(release: str, folder: Path) -> Path:
    """Have pip put the wheel of a release into a folder, and return the wheel."""
    if importlib.util.find_spec("pip") is None:
        raise CannotRunHere(
            f"Transformer Engine {release} is not in the cache, and there is no pip to fetch it with:"
            f" {sys.executable} -m ensurepip"
        )
    # The index, its mirrors and its proxies are the user's: pip is configured for them already.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command += [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        f"transformer-engine=={release}",
    ]
    print(f"te-harness: fetching Transformer Engine {release}", file=sys.stderr, flush=True)
    done = subprocess.run(  # noqa: S603
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise _explained(release, done.stderr)
    return wheels[0]


def _explained(release: str, said: str) -> InvalidInput | CannotRunHere:
    """Return the error for what pip said when it brought nothing."""
    if "(from versions: none)" in said:
        return IndexUnreachable(
            f"Transformer Engine {release} is not in the cache, and pip reaches no package index that has it;"
            " see to the network or to pip's configuration."
        )
    if "(from versions: " in said:
        return InvalidInput(
            f"the package index has no release {release} of Transformer Engine; known are {', '.join(KNOWN)}."
        )
    errors = [line for line in said.splitlines() if line.strip()] or ["it does not say why"]
    told = next((line for line in errors if line.startswith("ERROR: ")), errors[-1])
    return CannotRunHere(f"pip does not fetch Transformer Engine {release}: {files.quoted(told)}")


# --- Running under a release -------------------------------------------------------------------------


def enter(release: str) -> None:
    """Return if Transformer Engine is imported from this release here; else start over so that it is.

    Raises what :func:`fetch` raises.
    """
    folder = fetch(release)
    started = os.environ.pop(_STARTED, None)
    if _imports_from(folder):
        return
    if started == release:
        raise HarnessFault(f"Transformer Engine is not imported from {folder}, though it comes first.")
    sys.stdout.flush()
    sys.stderr.flush()
    command = start_command(sys.argv[1:])
    os.execve(command[0], command, start_environment(release))  # noqa: S606


def start_command(arguments: list[str]) -> list[str]:
    """Return the command line that runs one of our commands with another environment."""
    return [sys.executable, "-c", _START, sys.argv[0], *arguments]


def start_environment(release: str) -> dict[str, str]:
    """Return this process's environment, changed so that a new one runs under a release that is cached."""
    places = [str(folder_of(release))]
    # Where we run from a checkout, the new process must find us too. What is installed it finds by itself,
    # and a folder of installed packages must not come before the standard library.
    if str(_ROOT) not in {*site.getsitepackages(), site.getusersitepackages()}:
        places.append(str(_ROOT))
    places += filter(None, [os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), _STARTED: release}


def _imports_from(folder: Path) -> bool:
    spec = importlib.util.find_spec("transformer_engine")
    if spec is None or spec.origin is None:
        return False
    return Path(spec.origin).parents[1].resolve() == folder.resolve()
