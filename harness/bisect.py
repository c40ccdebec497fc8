"""Which release of Transformer Engine broke or fixed a case: every release is asked, each in its own process.

All releases of the range are judged, not only those that halving it would visit: a case may have been
broken and mended more than once, and two cores judge all in about a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from harness import releases
from harness.errors import CannotRunHere, HarnessFault, InvalidInput
from harness.survey import Row


class Change(msgspec.Struct, frozen=True):
    """Two neighbouring verdicts that differ: ``release`` has the later one, ``before`` the earlier.

    ``unjudged`` lie between the two: any of them may have been the first with the later verdict.
    """

    what: Literal["broken", "fixed"]
    release: str
    before: str
    unjudged: tuple[str, ...]


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
