"""Records of verdicts: the same cases judged on two machines or two releases, to be compared.

A record is a file of JSON lines: a header, then one entry per case. It keeps what must be the same
wherever a case runs (verdict, queue lengths, order of events, types of errors), and no sizes of
errors, which depend on the kernels.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from harness import case as c
from harness import corpus, files, validity
from harness.campaign import chunks, run_chunk
from harness.errors import InvalidInput, ReleaseLacks
from harness.tally import Tally
from harness.trace import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hypothesis.strategies import SearchStrategy

    from harness.session import Session
    from harness.verdict import Verdict

FORMAT = 1
"""Version of the layout of a record."""

MAX_BYTES = 256 * 1024 * 1024
"""Size of the largest record that is read; a case takes about three kilobytes."""

_Line = TypeVar("_Line")


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Common settings of the structs below."""


class Header(_Strict, frozen=True):
    """The first line: where and with what the cases were judged."""

    format: int
    where: dict[str, str]


class Entry(_Strict, frozen=True):
    """What became of one case. An error is told by the number of its step and its type."""

    fingerprint: str
    case: c.Case
    held: bool
    signature: tuple[str, ...]
    direct_error: tuple[int, str] | None
    checkpointed_error: tuple[int, str] | None
    queues: tuple[dict[str, int], ...]
    events: tuple[Event, ...]
    lacks: str = ""
    """What the release lacks for it; then it did not run, and neither held nor was violated."""

    @property
    def violated(self) -> bool:
        """Whether it ran and did not hold."""
        return not self.held and not self.lacks


class Record(_Strict, frozen=True):
    """A header and entries in the order in which the cases were judged."""

    header: Header
    entries: tuple[Entry, ...]


class Disagreement(_Strict, frozen=True):
    """A case of which two records say different things, and what those are."""

    case: c.Case
    differences: tuple[str, ...]


def draw(strategy: SearchStrategy[c.Case], cases: int, seed: int) -> list[c.Case]:
    """Return the cases that a campaign with this seed and number would judge."""
    from harness.verdict import Verdict

    drawn: list[c.Case] = []
    for chunk_seed, number in chunks(cases, seed):
        run_chunk(
            lambda case: Verdict(fingerprint=case.fingerprint, violations=()),
            strategy,
            chunk_seed,
            number,
            lambda case, _verdict: drawn.append(case),
        )
    return drawn


def judge(
    session: Session,
    cases: Sequence[c.Case],
    where: dict[str, str],
    on_progress: Callable[[Tally], None],
) -> Record:
    """Judge cases and return the record; ``on_progress`` is called after each with the tally so far."""
    tally, started, entries = Tally(), time.monotonic(), []
    for case in cases:
        try:
            verdict = session.judge(case)
        except ReleaseLacks as error:
            entries.append(_entry_not_run(case, error))
            tally.lacking[error.what] += 1
        else:
            entries.append(_entry(case, verdict))
            tally.count(case, verdict)
        tally.seconds = time.monotonic() - started
        on_progress(tally)
    return Record(Header(FORMAT, where), tuple(entries))


def _entry(case: c.Case, verdict: Verdict) -> Entry:
    errors = [
        None if error is None else (error.step, error.type)
        for error in (verdict.direct_error, verdict.checkpointed_error)
    ]
    return Entry(
        fingerprint=verdict.fingerprint,
        case=case,
        held=verdict.held,
        signature=verdict.signature,
        direct_error=errors[0],
        checkpointed_error=errors[1],
        queues=verdict.queues,
        events=verdict.events,
    )


def _entry_not_run(case: c.Case, error: ReleaseLacks) -> Entry:
    from harness.verdict import Verdict

    nothing_seen = _entry(case, Verdict(fingerprint=case.fingerprint, violations=()))
    return msgspec.structs.replace(nothing_seen, held=False, lacks=error.what)


def save(path: Path, record: Record) -> None:
    """Write a record to a new file."""
    lines = [msgspec.json.encode(line) for line in (record.header, *record.entries)]
    files.write_new(path, b"\n".join(lines) + b"\n")


def load(path: Path) -> Record:
    """Read a record; raises InvalidInput, which says in one line what is wrong with the file."""
    return _record(path, files.read(path, MAX_BYTES).splitlines())


def load_cases(path: Path) -> list[c.Case]:
    """Return the cases of a record, of a saved case or of a folder of saved cases, in their order.

    Raises InvalidInput, which says in one line what is wrong with the file.
    """
    if path.is_file():
        lines = files.read(path, MAX_BYTES).splitlines()
        if _begins_a_record(lines):
            return [entry.case for entry in _record(path, lines).entries]
    return [saved.case for _, saved in corpus.load_files(path)]


def _begins_a_record(lines: Sequence[bytes]) -> bool:
    """Return whether the first line is a header, of whatever format: a saved case has a case beside it."""
    try:
        header = msgspec.json.decode(lines[0] if lines else b"", type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return "format" in header and "case" not in header


def _record(path: Path, lines: Sequence[bytes]) -> Record:
    header = _parse(path, 1, lines[0] if lines else b"", Header)
    if header.format != FORMAT:
        raise InvalidInput(f"{path}: records of format {FORMAT} are known, not of {header.format}.")
    entries = [_parse(path, number, line, Entry) for number, line in enumerate(lines[1:], 2)]
    for number, entry in enumerate(entries, 2):
        _check(path, number, entry)
    if not entries:
        raise InvalidInput(f"{path}: a record without cases.")
    return Record(header, tuple(entries))


def _parse(path: Path, number: int, line: bytes, layout: type[_Line]) -> _Line:
    try:
        return msgspec.json.decode(line, type=layout)
    except RecursionError as error:
        raise InvalidInput(f"{path}: line {number} is nested too deeply.") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"{path}: line {number} is not of a record: {files.quoted(error)}") from error


def _check(path: Path, number: int, entry: Entry) -> None:
    try:
        validity.check(entry.case)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: line {number}: {error}") from error
    if entry.fingerprint != entry.case.fingerprint:
        raise InvalidInput(f"{path}: line {number}: the case is not the one that the fingerprint names.")


def compare(mine: Record, other: Record) -> list[Disagreement]:
    """Return the cases of which two records say different things.

    Raises InvalidInput where they do not hold the same cases in the same order.
    """
    if [entry.fingerprint for entry in mine.entries] != [entry.fingerprint for entry in other.entries]:
        raise InvalidInput(
            "the records hold different cases: make the second one with `te-harness record --from` the first."
        )
    found = []
    for a, b in zip(mine.entries, other.entries, strict=True):
        differences = tuple(_differences(a, b))
        if differences:
            found.append(Disagreement(a.case, differences))
    return found


def _differences(a: Entry, b: Entry) -> list[str]:
    found = [
        f"{name}: {mine} and {other}"
        for name, mine, other in (
            ("verdict", _verdict(a), _verdict(b)),
            ("error of the direct run", _error(a.direct_error), _error(b.direct_error)),
            ("error of the checkpointed run", _error(a.checkpointed_error), _error(b.checkpointed_error)),
        )
        if mine != other
    ]
    if a.queues != b.queues:
        found.append(f"FIFO lengths at each standstill: {list(a.queues)} and {list(b.queues)}")
    if a.events != b.events:
        found.append(_first_difference(a.events, b.events))
    return found


_NUMBERS = {"outputs", "input gradients", "parameter gradients", "FP8 state", "steady memory"}


def _verdict(entry: Entry) -> str:
    """Tell a verdict by the bookkeeping that is wrong.

    Which numbers a stale scale then changes depends on how a backend's kernels round, and is left out.
    """
    if entry.lacks:
        return f"not run for lack of {entry.lacks}"
    if entry.held:
        return "held"
    told = [kind for kind in entry.signature if kind not in _NUMBERS]
    return f"violated ({', '.join(told) or 'in numbers only'})"


def _error(error: tuple[int, str] | None) -> str:
    return "none" if error is None else f"{error[1]} in step {error[0]}"


def _first_difference(a: Sequence[Event], b: Sequence[Event]) -> str:
    for number, (mine, other) in enumerate(zip(a, b, strict=False)):
        if mine != other:
            return f"event {number}: {mine} and {other}"
    return f"events: {len(a)} and {len(b)}, alike as far as both go"
