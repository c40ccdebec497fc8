"""A replay: a saved case is judged again, and what has become of it since it was saved."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from harness.errors import DeviceLost, InvalidInput
from harness.outside import Ended, Outside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from harness.corpus import SavedCase
    from harness.session import Session
    from harness.target import Target
    from harness.verdict import Verdict

Became: TypeAlias = Literal["held", "violated", "reproduced", "fixed", "changed"]
"""``reproduced``: violated, or crashed, in one of the ways it was saved for; ``changed``: in others alone;
``fixed``: no longer. Of a case saved for nothing that was seen: ``held`` or ``violated``."""

FAILS: Final[tuple[Became, ...]] = ("violated", "reproduced", "changed")

_FINGERPRINT = re.compile("[0-9a-f]{4,}")
_DECIDES = ("backend", "te_mode", "checkpointer")
"""What must be as it was for a case that holds to be fixed, and not merely judged elsewhere."""


def became(saved: SavedCase, answer: Verdict | Ended) -> Became:
    """Return what has become of a saved case, given what came of it now."""
    was = {violation.signature for violation in saved.seen.violations}
    if saved.seen.ending:
        was.add(saved.seen.ending)
    if isinstance(answer, Ended):
        now = {answer.how}
    else:
        now = {violation.signature for violation in answer.violations}
    if not was:
        return "violated" if now else "held"
    if not now:
        return "fixed"
    return "reproduced" if was & now else "changed"


def obstacle(saved: SavedCase, where: Mapping[str, str]) -> str | None:
    """Return why a case that no longer fails may not be taken for fixed; None where it may."""
    for name in _DECIDES:
        if saved.where.get(name) != where.get(name):
            return f"it was seen with {name} {saved.where.get(name)}"
    return None


def judged_as(where: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return what makes two verdicts on a case comparable: backend, TE mode and checkpointer."""
    return tuple(where.get(name) for name in _DECIDES)


def find(name: Path, folder: Path) -> Path:
    """Return the file of a case that is named by a path, or by how its fingerprint begins.

    A fingerprint is looked for in a folder and those in it. A name that is neither is returned as it is.
    Raises InvalidInput where several cases begin so.
    """
    if name.exists() or not _FINGERPRINT.fullmatch(str(name)):
        return name
    found = sorted(folder.rglob(f"{name}*.json"))
    if len({path.name for path in found}) > 1:
        raise InvalidInput(f"{name}: {len(found)} cases in {folder} begin so; give more of the fingerprint.")
    return found[0] if found else name


class Replayer:
    """Judges saved cases again: in this process, but for those that may end it.

    Args:
        target: what is tested.
        case_timeout: seconds after which a case that is judged outside is taken to hang.
    """

    def __init__(self, target: Target, case_timeout: float) -> None:
        self._target = target
        self._outside = Outside(target, case_timeout)
        self._lost = False
        self._opened = functools.cache(target.open)

    def __enter__(self) -> Replayer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outside.__exit__(kind, error, trace)

    def judge(self, saved: SavedCase) -> Verdict | Ended:
        """Return the verdict on a case, or how it ended the process that judged it.

        Raises CannotRunHere where this machine or the installed TE cannot run it.
        """
        if saved.seen.ending or self._lost:
            return self._outside.judge(saved.case)
        try:
            return self.session.judge(saved.case)
        except DeviceLost as lost:
            # This process gets no right answer any more: all others are judged outside.
            self._lost = True
            return Ended(lost.how)

    @property
    def where(self) -> dict[str, str]:
        """What is said of this place in a saved case."""
        return self._target.where(self.session)

    @property
    def session(self) -> Session:
        """The session of this process."""
        return self._opened()
