"""The example database: Hypothesis's own, opened by one setting, and kept from costing anybody a run.

A folder by default, a Redis server for a fleet, or a read-only view of what another's nightly run has kept.
"""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import urlsplit

import hypothesis
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    GitHubArtifactDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)
from hypothesis.errors import HypothesisWarning

from harness import files
from harness.errors import CannotRunHere, InvalidInput

if TYPE_CHECKING:
    import redis

VARIABLE = "TE_HARNESS_DATABASE"
"""The environment variable that is read where there is no option."""

FORMS = "a folder, redis://HOST:PORT/NUMBER, github:OWNER/REPO[/ARTIFACT] or none"

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 10.0
_KEPT = timedelta(days=30)
"""How long a Redis server keeps what nobody asks for."""
_PREFIX = b"te-harness:"
_CHANNEL = "te-harness-changes"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_NUMBERED = re.compile(r"/?|/\d+")
_NAME = re.compile(r'(?!\.{1,2}$)[^\\/:*?"<>|\s]+')
_ARTIFACT = "hypothesis-example-db"
"""The name of an artifact that Hypothesis takes too where none is given."""

Complain: TypeAlias = Callable[[str], object]
"""Says a line to the user."""

T = TypeVar("T")


class Guarded(ExampleDatabase):
    """An example database that another machine serves: once it fails, it is empty and keeps nothing.

    It says so once. What it warns of becomes a line too. ``lost`` tells whether it has failed.
    """

    def __init__(self, database: ExampleDatabase, name: str, complain: Complain) -> None:
        super().__init__()
        self._database = database
        self._name = name
        self._complain = complain
        self.lost = False

    def __repr__(self) -> str:
        # Hypothesis shows it in pytest's header: no more than what may be printed.
        return f"<{self._name}>"

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """Return all values of a key."""
        return self._attempt(lambda: list(self._database.fetch(key)), [])

    def save(self, key: bytes, value: bytes) -> None:
        """Keep a value."""
        self._attempt(lambda: self._database.save(key, value), None)

    def delete(self, key: bytes, value: bytes) -> None:
        """Remove a value."""
        self._attempt(lambda: self._database.delete(key, value), None)

    def move(self, src: bytes, dest: bytes, value: bytes) -> None:
        """Put a value under another key."""
        self._attempt(lambda: self._database.move(src, dest, value), None)

    def _attempt(self, action: Callable[[], T], otherwise: T) -> T:
        if self.lost:
            return otherwise
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return action()
            except Exception as error:  # whatever it is: another machine's, or in what it has sent
                self.lost = True
                self._complain(f"{self._name}: {_text(error)}; it is left out from now on.")
            finally:
                if told := [str(one.message).strip() for one in caught if one.category is HypothesisWarning]:
                    self._complain(f"{self._name}: {' '.join(told)}")
        return otherwise


class _Artifact(GitHubArtifactDatabase):
    """An artifact of GitHub that is not waited for without an end."""

    def fetch(self, key: bytes) -> Iterable[bytes]:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(_ANSWER_SECONDS)
        try:
            return list(super().fetch(key))
        finally:
            socket.setdefaulttimeout(before)


def setting_of(option: str | None) -> str | None:
    """Return the setting that counts: the option, else the environment variable; None where there is none."""
    return option or os.environ.get(VARIABLE) or None


def open_database(option: str | None, complain: Complain) -> ExampleDatabase | None:
    """Return the database that the setting names, Hypothesis's own directory where there is no setting.

    Args:
        option: what the user gave as an option, which wins over the environment variable.
        complain: told in a line, now or later, what goes wrong with a database without ending the run.

    Raises:
        InvalidInput: a setting that is none of the known forms, or a folder that cannot be written to.
        CannotRunHere: a server that does not answer, or whose client is not installed.
    """
    setting = setting_of(option)
    if setting is None:
        return _own(complain)
    if setting == "none":
        return None
    scheme, _, rest = setting.partition(":")
    if not _SCHEME.match(setting):
        return _folder(setting)
    match scheme.lower():
        case "directory":
            return _folder(rest)
        case "redis" | "rediss":
            return _redis(setting, complain)
        case "github":
            return _github(rest, complain)
    # Not the whole of it, which may hold a password.
    raise InvalidInput(f"database: nothing is known of {files.quoted(scheme)}: give {FORMS}.")


def _own(complain: Complain) -> ExampleDatabase | None:
    """Return the directory of Hypothesis's default profile; it falls back to memory, with a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        database = hypothesis.settings.get_profile("default").database
    for warning in caught:
        complain(f"database: {warning.message}")
    return database


def _folder(text: str) -> ExampleDatabase:
    path = Path(text).absolute()
    files.check_folder(path)
    return DirectoryBasedExampleDatabase(path)


# --- A Redis server ----------------------------------------------------------------------------------


def _redis(url: str, complain: Complain) -> ExampleDatabase:
    name = _spoken(url)
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
    except ModuleNotFoundError as error:
        raise CannotRunHere(
            f"{name}: the client is not installed: pip install redis, or this package with [fleet]."
        ) from error
    try:
        client = _client(url)
        client.ping()
    except (TypeError, ValueError):
        # Their text may hold a part of the URL.
        raise _no_redis_url(name) from None
    except (redis.RedisError, OSError) as error:
        raise CannotRunHere(f"{name}: the server does not answer ({_text(error)}).") from error
    database = RedisExampleDatabase(client, expire_after=_KEPT, key_prefix=_PREFIX, listener_channel=_CHANNEL)
    return Guarded(database, name, complain)


def _client(url: str) -> redis.Redis:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(
        url,
        socket_connect_timeout=_CONNECT_SECONDS,
        socket_timeout=_ANSWER_SECONDS,
        # A connection that idled through a campaign may have been closed by somebody in between.
        retry=Retry(NoBackoff(), 1),
    )


def _spoken(url: str) -> str:
    """Return a URL without what is secret in it; raises InvalidInput for one of another form."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        raise _no_redis_url("database") from None
    if not parts.hostname or not _NUMBERED.fullmatch(parts.path):
        raise _no_redis_url("database")
    return files.quoted(f"{parts.scheme}://{parts.hostname}{port}{parts.path}")


def _no_redis_url(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: a Redis URL is redis://[USER:PASSWORD@]HOST[:PORT][/NUMBER], with what is odd in it"
        " percent-encoded; rediss:// for TLS."
    )


def _text(error: Exception) -> str:
    return files.quoted(str(error).rstrip(".") or type(error).__name__)


# --- Artifacts of GitHub -----------------------------------------------------------------------------


def _github(text: str, complain: Complain) -> ExampleDatabase:
    """Return the own directory, and beside it the artifact, which is read only."""
    names = text.split("/")
    if len(names) not in (2, 3) or not all(_NAME.fullmatch(name) for name in names):
        raise InvalidInput(
            f"database: {files.quoted(text)} is not of the form OWNER/REPO or OWNER/REPO/ARTIFACT."
        )
    owner, repo, artifact = [*names, _ARTIFACT][:3]
    # By its name alone, as Hypothesis has it, one repository's would be taken for another's.
    cache = files.cache_folder() / "github-artifacts" / owner / repo / artifact
    remote = _Artifact(owner, repo, artifact_name=artifact, path=cache)
    # Even of a public repository, GitHub gives artifacts to none but who says who they are.
    hint = "" if remote.token else " GITHUB_TOKEN is not set."
    guarded = Guarded(remote, f"github:{owner}/{repo}/{artifact}", lambda line: complain(line + hint))
    view = ReadOnlyDatabase(guarded)
    own = _own(complain)
    return view if own is None else MultiplexedDatabase(own, view)
