"""Which release of Transformer Engine broke or fixed a case: every release is asked, each in its own process.

All releases of the range are judged, not only those that halving it would visit: a case may have been
broken and mended more than once, and two processes at a time judge all in about a minute.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from harness import case as c
from harness import corpus, files, record, releases
from harness.errors import CannotRunHere, HarnessError, HarnessFault, InvalidInput
from harness.releases import IndexUnreachable
from harness.workers import default_workers, interruptible

Status: TypeAlias = Literal["held", "violated", "cannot run", "failed"]
"""``cannot run``: not with this release. ``failed``: a crash, a process that hung, a fault of the harness."""

_PATIENCE_SECONDS = 120.0
"""For one release; its imports take about five seconds."""
_TICK_SECONDS = 0.05
_CANNOT_RUN = (InvalidInput.exit_code, CannotRunHere.exit_code)


class Row(msgspec.Struct, frozen=True):
    """What became of the case under one release: kinds of violations, or why there is no verdict."""

    release: str
    status: Status
    kinds: tuple[str, ...] = ()
    reason: str = ""

    @property
    def judged(self) -> bool:
        """Whether there is a verdict."""
        return self.status in ("held", "violated")


class Change(msgspec.Struct, frozen=True):
    """Two neighbouring verdicts that differ: ``release`` has the later one, ``before`` the earlier.

    ``unjudged`` lie between the two: any of them may have been the first with the later verdict.
    """

    what: Literal["broken", "fixed"]
    release: str
    before: str
    unjudged: tuple[str, ...]


# --- The range ---------------------------------------------------------------------------------------


def chosen(good: str | None, bad: str | None) -> list[str]:
    """Return the releases to judge, oldest first: from one to the other, or all that are known.

    Raises InvalidInput where both are the same.
    """
    ends = {release for release in (good, bad) if release is not None}
    wanted = releases.ordered({*releases.KNOWN, *ends})
    if good is None or bad is None:
        return wanted
    if good == bad:
        raise InvalidInput(f"--good and --bad are both {good}; give two releases.")
    first, last = sorted(wanted.index(end) for end in ends)
    return wanted[first : last + 1]


def check_ends(rows: Sequence[Row], good: str | None, bad: str | None) -> None:
    """Raise InvalidInput where a verdict is not the one that the user gave; CannotRunHere for none."""
    for option, release, expected in (("--good", good, "held"), ("--bad", bad, "violated")):
        for row in rows:
            if row.release != release or row.status == expected:
                continue
            if row.judged:
                was = "held" if row.status == "held" else "is violated"
                raise InvalidInput(f"{option} {release}: the case {was} there; give another release.")
            raise CannotRunHere(f"{option} {release}: no verdict there ({row.reason}); give another release.")


def changes(rows: Sequence[Row]) -> list[Change]:
    """Return where the verdict changes from one release that was judged to the next."""
    found: list[Change] = []
    before: Row | None = None
    unjudged: list[str] = []
    for row in rows:
        if not row.judged:
            unjudged.append(row.release)
            continue
        if before is not None and before.status != row.status:
            what: Literal["broken", "fixed"] = "broken" if row.status == "violated" else "fixed"
            found.append(Change(what, row.release, before.release, tuple(unjudged)))
        before, unjudged = row, []
    return found


def check_judged(rows: Sequence[Row]) -> None:
    """Raise an error where there is not one verdict."""
    if any(row.judged for row in rows):
        return
    told = f"none of {len(rows)} releases was judged; {rows[-1].release}: {rows[-1].reason}"
    raise (HarnessFault if all(row.status == "failed" for row in rows) else CannotRunHere)(told)


# --- The processes -----------------------------------------------------------------------------------


def judge(
    case: c.Case, wanted: Sequence[str], te_mode: str, on_row: Callable[[Row], None] = lambda _row: None
) -> list[Row]:
    """Judge a case under releases and return a row for each, in their order.

    ``on_row`` is called with each row as it comes. As many processes run at a time as there are cores; none
    of them can end the others, and whatever ends this one ends them.
    """
    waiting, running, rows = deque(wanted), list[_Child](), dict[str, Row]()

    def take(row: Row) -> None:
        rows[row.release] = row
        on_row(row)

    with interruptible(), tempfile.TemporaryDirectory() as folder:
        starter = _Starter(Path(folder), case, te_mode)
        try:
            while waiting or running:
                if waiting and len(running) < default_workers():
                    started = starter.start(waiting.popleft())
                    if isinstance(started, Row):
                        take(started)
                    else:
                        running.append(started)
                    continue
                time.sleep(_TICK_SECONDS)
                for child in list(running):
                    row = child.row()
                    if row is not None:
                        running.remove(child)
                        take(row)
        finally:
            for child in running:
                child.end()
    return [rows[release] for release in wanted]


class _Starter:
    """Fetches releases and starts processes, until there is no index to fetch from."""

    def __init__(self, folder: Path, case: c.Case, te_mode: str) -> None:
        self._folder = folder
        # A copy: what the user's file holds by the time a process reads it may be something else.
        self._options = ["--from", str(corpus.save(folder, corpus.SavedCase(case=case))), "--te", te_mode]
        self._obstacle: IndexUnreachable | None = None

    def start(self, release: str) -> _Child | Row:
        """Return a process that judges the case under a release, or the row that says why there is none."""
        try:
            # Asking an index that does not answer takes long, so it is asked once.
            if self._obstacle is not None and not releases.is_cached(release):
                raise self._obstacle
            releases.fetch(release)
        except HarnessError as error:
            if isinstance(error, IndexUnreachable):
                self._obstacle = error
            return Row(release, "cannot run", reason=str(error))
        return _Child(release, self._folder, self._options)


class _Child:
    """A process that records what becomes of the case under one release."""

    def __init__(self, release: str, folder: Path, options: Sequence[str]) -> None:
        self._release = release
        self._out = folder / f"{release}.record"
        self._said = folder / f"{release}.said"
        self._deadline = time.monotonic() + _PATIENCE_SECONDS
        command = releases.start_command(["record", str(self._out), "--release", release, *options])
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=releases.start_environment(release),
            )

    def row(self) -> Row | None:
        """Return what came of the case; None as long as nothing has."""
        code = self._process.poll()
        if code == 0:
            return self._verdict()
        if code is not None:
            status: Status = "cannot run" if code in _CANNOT_RUN else "failed"
            return Row(self._release, status, reason=self._last_words(code))
        if time.monotonic() < self._deadline:
            return None
        self.end()
        return Row(self._release, "failed", reason=f"no verdict within {_PATIENCE_SECONDS:g} seconds")

    def end(self) -> None:
        """End the process, if it still runs."""
        self._process.kill()
        self._process.wait()

    def _verdict(self) -> Row:
        try:
            (entry,) = record.load(self._out).entries
        except InvalidInput as error:
            return Row(self._release, "failed", reason=str(error))
        if entry.lacks:
            return Row(self._release, "cannot run", reason=f"lacks {entry.lacks}")
        if not entry.held:
            return Row(self._release, "violated", entry.signature)
        if entry.direct_error is not None:
            # Where neither run gets through, as with a module that the release does not have, they agree on
            # nothing: that is no verdict, and the release that brings the module fixes nothing.
            step, error_type = entry.direct_error
            told = f"both runs raised {error_type} in step {step}: nothing to compare"
            return Row(self._release, "cannot run", reason=told)
        return Row(self._release, "held")

    def _last_words(self, code: int) -> str:
        said = self._said.read_text(errors="replace").splitlines()
        if code < 0:
            return f"died of signal {-code}"
        last = next((line for line in reversed(said) if line.strip()), f"exit code {code}")
        return files.quoted(last.removeprefix("te-harness: "))
