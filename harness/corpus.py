"""Saved cases: one JSON file each, named by the case's fingerprint, safe to read from strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harness import case as c
from harness import files, validity
from harness.errors import InvalidInput
from harness.trace import RunError
from harness.violations import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.failure import Failure
    from harness.verdict import Verdict

FORMAT = 1
"""Version of the layout of a saved case; the case inside has a version of its own."""

MAX_BYTES = 1024 * 1024
"""Size of the largest saved case that is read; most take five kilobytes."""


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Common settings of the structs below."""


class Seen(_Saved, frozen=True, kw_only=True):
    """What a case did when it was saved."""

    violations: tuple[Violation, ...] = ()
    direct_error: RunError | None = None
    checkpointed_error: RunError | None = None
    queues: tuple[dict[str, int], ...] = ()
    ending: str = ""
    """How the process ended that judged it; empty where it did not."""


class Found(_Saved, frozen=True, kw_only=True):
    """The campaign that came upon a case."""

    seed: int
    domain: str


class _Notes(_Saved, frozen=True, kw_only=True):
    """Why a case is kept, what was seen, and where: backend, GPU, TE and torch."""

    why: str = ""
    seen: Seen = Seen()
    where: dict[str, str] = {}
    found: Found | None = None


class SavedCase(_Notes, frozen=True, kw_only=True):
    """A case and what is known of it."""

    case: c.Case


class _FileNotes(_Notes, frozen=True, kw_only=True):
    """What a file holds beside the case; the fingerprint tells whether somebody edited the case."""

    format: int
    fingerprint: str | None = None


def seen_of(verdict: Verdict) -> Seen:
    """Return what of a verdict is saved."""
    return Seen(
        violations=verdict.violations,
        direct_error=verdict.direct_error,
        checkpointed_error=verdict.checkpointed_error,
        queues=verdict.queues,
    )


def from_failure(
    failure: Failure, where: Mapping[str, str] | None = None, found: Found | None = None
) -> SavedCase:
    """Return a failure as a case to save."""
    seen = seen_of(failure.verdict)
    why = f"fails: {failure.kind}"
    return SavedCase(case=failure.case, why=why, seen=seen, where=dict(where or {}), found=found)


def save_failure(
    folder: Path, failure: Failure, where: Mapping[str, str] | None = None, found: Found | None = None
) -> Path:
    """Save a failure in a folder and return the file."""
    return save(folder, from_failure(failure, where, found))


def save(folder: Path, saved: SavedCase) -> Path:
    """Save a case in a folder, which is made where it is missing, and return the file.

    A case that is there already is left as it was saved first. Raises InvalidInput where the folder
    cannot be written to or a file of that name holds something else, and CannotRunHere where the disk is
    full or read-only.
    """
    path = folder / f"{saved.case.fingerprint}.json"
    files.make_folder(folder)
    try:
        files.write_new(path, encode(saved))
    except files.FileTakenError:
        if load(path).case != saved.case:
            raise
    return path


def place(folder: Path, saved: SavedCase) -> Path:
    """Return the folder for a case: one within for what ended its process.

    A folder of cases is replayed in one process, which any of these would end.
    """
    return folder / "crashes" if saved.seen.ending else folder


def encode(saved: SavedCase) -> bytes:
    """Return a saved case as indented JSON."""
    # What a person reads first comes first.
    fields = {
        "format": FORMAT,
        "fingerprint": saved.case.fingerprint,
        "why": saved.why,
        "case": c.plain(saved.case),
        "seen": saved.seen,
        "where": saved.where,
        "found": saved.found,
    }
    encoded = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    return msgspec.json.format(encoded, indent=2) + b"\n"


def load(path: Path) -> SavedCase:
    """Read a saved case, or a file that holds nothing but a case.

    Raises InvalidInput, which says in one line what is wrong with the file.
    """
    data = files.read(path, MAX_BYTES)
    try:
        return decode(data)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def load_folder(folder: Path) -> list[tuple[Path, SavedCase]]:
    """Read all saved cases of a folder in the order of their names; other files are passed over."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise InvalidInput(f"{folder}: cannot be read ({error.strerror or error}).") from error
    return [(path, load(path)) for path in paths]


def load_files(path: Path) -> list[tuple[Path, SavedCase]]:
    """Read a saved case, or all those of a folder; raises InvalidInput for a folder without any."""
    if not path.is_dir():
        return [(path, load(path))]
    found = load_folder(path)
    if not found:
        raise InvalidInput(f"{path}: there are no saved cases (*.json) in this folder.")
    return found


def decode(data: bytes) -> SavedCase:
    """Return the saved case that a file or a database holds; raises InvalidInput for anything else."""
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"larger than the {MAX_BYTES} bytes that a saved case may take.")
    try:
        content = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "case" not in content and "format" not in content:
            return SavedCase(case=validity.decode(data))
        _check_format(content)
        case = validity.decode(bytes(content.pop("case", b"null")))
        rest: dict[str, Any] = {name: msgspec.json.decode(raw) for name, raw in content.items()}
        _restore_infinities(rest.get("seen"))
        notes = msgspec.convert(rest, _FileNotes)
    except RecursionError as error:
        raise InvalidInput("not a usable saved case: nested too deeply.") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"not a usable saved case: {files.quoted(error)}") from error
    if notes.fingerprint not in (None, case.fingerprint):
        raise InvalidInput(
            f"the case is {case.fingerprint}, the file says {files.quoted(notes.fingerprint)}: it was"
            " edited; take the fingerprint out to use it as it is."
        )
    return SavedCase(case=case, why=notes.why, seen=notes.seen, where=notes.where, found=notes.found)


def _check_format(content: dict[str, msgspec.Raw]) -> None:
    number = msgspec.json.decode(content.get("format", b"null"))
    if number != FORMAT:
        raise InvalidInput(f"saved cases of format {FORMAT} are known, not of {files.quoted(number)}.")


def _restore_infinities(seen: Any) -> None:
    """Put infinities back where JSON, which has none, holds null: in the sizes of differences."""
    violations = seen.get("violations") if isinstance(seen, dict) else None
    for violation in violations if isinstance(violations, list) else []:
        difference = violation.get("difference") if isinstance(violation, dict) else None
        if isinstance(difference, dict):
            for name in ("absolute", "relative"):
                if difference.get(name, 0.0) is None:
                    difference[name] = float("inf")
