"""A survey: the same cases judged under many releases of Transformer Engine, each in a process of its own.

A process judges all cases under its release, since importing Transformer Engine takes longer than a case.
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
from harness.errors import CannotRunHere, HarnessError, InvalidInput
from harness.gpus import cores
from harness.releases import IndexUnreachable
from harness.workers import interruptible

Status: TypeAlias = Literal["held", "violated", "cannot run", "failed"]
"""``cannot run``: not with this release. ``failed``: a crash, a process that hung, a fault of the harness."""

_PATIENCE_SECONDS = 120.0
"""For one release; its imports take about five seconds, and a small case a tenth of one."""
_TICK_SECONDS = 0.05
_CANNOT_RUN = (CannotRunHere.exit_code,)


class Row(msgspec.Struct, frozen=True):
    """What became of a case under one release: kinds of violations, or why there is no verdict."""

    release: str
    status: Status
    kinds: tuple[str, ...] = ()
    reason: str = ""

    @property
    def judged(self) -> bool:
        """Whether there is a verdict."""
        return self.status in ("held", "violated")


Rows: TypeAlias = tuple[Row, ...]
"""What became of each of the cases, in their order, under one release."""


def judge(
    cases: Sequence[c.Case],
    wanted: Sequence[str],
    te_mode: str,
    on_rows: Callable[[Rows], None] = lambda _rows: None,
) -> list[Rows]:
    """Judge cases, each of them another, under releases; return the rows of each release, in their order.

    ``on_rows`` is called with the rows of a release as they come. As many processes run at a time as there
    are cores; none of them can end the others, and an interruption of this one ends them.
    """
    waiting, running, found = deque(wanted), list[_Child](), dict[str, Rows]()

    def take(rows: Rows) -> None:
        found[rows[0].release] = rows
        on_rows(rows)

    with interruptible(), tempfile.TemporaryDirectory() as folder:
        starter = _Starter(Path(folder), cases, te_mode)
        try:
            while waiting or running:
                if waiting and len(running) < cores():
                    started = starter.start(waiting.popleft())
                    if isinstance(started, Row):
                        take((started,) * len(cases))
                    else:
                        running.append(started)
                    continue
                time.sleep(_TICK_SECONDS)
                for child in list(running):
                    rows = child.rows()
                    if rows is not None:
                        running.remove(child)
                        take(rows)
        finally:
            for child in running:
                child.end()
    return [found[release] for release in wanted]


class _Starter:
    """Fetches releases and starts processes, until there is no index to fetch from."""

    def __init__(self, folder: Path, cases: Sequence[c.Case], te_mode: str) -> None:
        self._folder = folder
        self._cases = cases
        # Copies: what the user's files hold by the time a process reads them may be something else.
        copies = folder / "cases"
        for case in cases:
            corpus.save(copies, corpus.SavedCase(case=case))
        self._options = ["--from", str(copies), "--te", te_mode]
        self._obstacle: IndexUnreachable | None = None

    def start(self, release: str) -> _Child | Row:
        """Return a process that judges the cases under a release, or the row that says why there is none."""
        try:
            # Asking an index that does not answer takes long, so it is asked once.
            if self._obstacle is not None and not releases.is_cached(release):
                raise self._obstacle
            releases.fetch(release)
        except HarnessError as error:
            if isinstance(error, IndexUnreachable):
                self._obstacle = error
            return Row(release, "cannot run", reason=str(error))
        return _Child(release, self._folder, self._cases, self._options)


class _Child:
    """A process that records what becomes of the cases under one release."""

    def __init__(self, release: str, folder: Path, cases: Sequence[c.Case], options: Sequence[str]) -> None:
        self._release = release
        self._cases = cases
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

    def rows(self) -> Rows | None:
        """Return what came of the cases; None as long as nothing has."""
        code = self._process.poll()
        if code == 0:
            return self._verdicts()
        if code is not None:
            return self._same_for_all(
                "cannot run" if code in _CANNOT_RUN else "failed", self._last_words(code)
            )
        if time.monotonic() < self._deadline:
            return None
        self.end()
        return self._same_for_all("failed", f"no verdict within {_PATIENCE_SECONDS:g} seconds")

    def end(self) -> None:
        """End the process, if it still runs."""
        self._process.kill()
        self._process.wait()

    def _same_for_all(self, status: Status, reason: str) -> Rows:
        return (Row(self._release, status, reason=reason),) * len(self._cases)

    def _verdicts(self) -> Rows:
        try:
            entries = {entry.fingerprint: entry for entry in record.load(self._out).entries}
        except InvalidInput as error:
            return self._same_for_all("failed", str(error))
        return tuple(_row(self._release, entries[case.fingerprint]) for case in self._cases)

    def _last_words(self, code: int) -> str:
        said = self._said.read_text(errors="replace").splitlines()
        if code < 0:
            return f"died of signal {-code}"
        last = next((line for line in reversed(said) if line.strip()), f"exit code {code}")
        return files.quoted(last.removeprefix("te-harness: "))


def _row(release: str, entry: record.Entry) -> Row:
    if entry.lacks:
        return Row(release, "cannot run", reason=f"lacks {entry.lacks}")
    if not entry.held:
        return Row(release, "violated", entry.signature)
    if entry.direct_error is not None:
        # Where neither run gets through, as with a module that the release does not have, they agree on
        # nothing: that is no verdict, and the release that brings the module fixes nothing.
        step, error_type = entry.direct_error
        return Row(
            release,
            "cannot run",
            reason=f"both runs raised {error_type} in step {step}: nothing to compare",
        )
    return Row(release, "held")
