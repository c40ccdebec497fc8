"""What a timeline shows, in plain English: a sentence or two on what went wrong, the cause first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.timeline import Mark, Timeline

_RIGHT = "Every recompute took the snapshot that its own forward pushed, and nothing is left in any queue."
_NOTHING = "No snapshot was due, and none was pushed or taken."


def tell(timeline: Timeline) -> tuple[str, ...]:
    """Return a line or a few, of one or two sentences each."""
    wrong = [mark for mark in timeline.marks if mark.wrong]
    none = [mark for mark in wrong if mark.kind == "no pop" and not mark.misrun]
    other = [mark for mark in wrong if mark.kind == "pop" and mark.own != mark.snapshot]
    told = [
        *_of_many([_ran_otherwise(timeline, mark) for mark in wrong if mark.misrun]),
        *_of_many([_took_none(timeline, mark) for mark in none]),
        *_of_many([_took_another(timeline, mark) for mark in other]),
        *_of_many([_not_restored(timeline, mark) for mark in timeline.marks if mark.restored is False]),
        *_left_over(timeline),
        *_stopped(timeline),
    ]
    if not timeline.is_right and not timeline.violations:
        told.append("The case held all the same: no oracle objected.")
    return (*(told or _all_right(timeline)), *_unseen(timeline))


def _of_many(sentences: list[str]) -> list[str]:
    """Return the first of several sentences of one kind, and how many more there are, in one line."""
    more = len(sentences) - 1
    if more < 1:
        return sentences
    return [f"{sentences[0]} The same happened {'once more' if more == 1 else f'{more} more times'}."]


def _took_another(timeline: Timeline, mark: Mark) -> str:
    who, when = timeline.rows[mark.row].full_name, _recompute(timeline, mark)
    giver, own = timeline.giver(mark.snapshot), timeline.giver(mark.own)
    if giver is None:
        return f"{who} took a snapshot for {when} whose push was not seen."
    if timeline.band_of(mark).phase == 1:
        return f"{who} took snapshot {mark.snapshot} in {_when(timeline, mark)}, where none is to be taken."
    source = f"snapshot {mark.snapshot}, pushed in {_when(timeline, giver)}{_cause(timeline, giver, mark)}"
    due = "its own forward had pushed none" if own is None else f"its own was snapshot {mark.own}"
    where = "" if own is None else f", pushed in {_when(timeline, own)}"
    return f"{who} took {source}, for {when}; {due}{where}."


def _cause(timeline: Timeline, giver: Mark, taker: Mark) -> str:
    """Say why a snapshot of another iteration was first in the queue."""
    pushed, taken = timeline.band_of(giver), timeline.band_of(taker)
    if pushed.iteration == taken.iteration:
        return ""
    later = (band for band in timeline.bands if band.step > taken.step and band.iteration == pushed.iteration)
    if any(band.phase == 2 for band in later):
        return ", whose backward comes later"
    before = (band for band in timeline.bands if pushed.step < band.step < taken.step)
    if any(band.iteration == pushed.iteration and band.phase == 2 for band in before):
        return " and left over there"
    return ", which no backward followed"


def _took_none(timeline: Timeline, mark: Mark) -> str:
    who, when = timeline.rows[mark.row].full_name, _recompute(timeline, mark)
    iteration = _iteration(timeline, mark)
    if mark.raised:
        lacking = any(
            other.kind == "no push" and other.row == mark.row and _iteration(timeline, other) == iteration
            for other in timeline.marks
        )
        cause = ", since its forward had pushed none" if lacking else ""
        return f"{who} found no snapshot to take for {when}{cause}: {mark.raised}."
    how = "without taking a snapshot, so with the live scales instead of its forward's"
    return f"{who} ran again for {when} {how}."


def _not_restored(timeline: Timeline, mark: Mark) -> str:
    who, when = timeline.rows[mark.row].full_name, _recompute(timeline, mark)
    return f"The live scales of {who} were not put back after {when}."


def _ran_otherwise(timeline: Timeline, mark: Mark) -> str:
    return f"{timeline.rows[mark.row].full_name} {mark.misrun}, in {_when(timeline, mark)}."


def _left_over(timeline: Timeline) -> list[str]:
    """Count what no backward will ever take; the flags stand for forwards that wait for theirs too."""
    lost = [(row, left) for row in timeline.rows for left in row.left if left.wrong]
    told = []
    if lost:
        owners = sorted({row.full_name for row, _ in lost})
        where = f"the queue of {owners[0]}" if len(owners) == 1 else f"the queues of {len(owners)} modules"
        told.append(
            f"{_are(len(lost), 'snapshot')} left over at the end, in {where}; no backward takes what is left."
        )
    if timeline.flags_left:
        told.append(f"{_are(timeline.flags_left, 'first-module flag')} left over at the end.")
    return told


def _stopped(timeline: Timeline) -> list[str]:
    error = timeline.error
    if error is None or any(mark.raised for mark in timeline.marks):
        return []
    both = "; the direct run ended in an error too" if timeline.raised_directly else ""
    band = timeline.bands[error.step]
    told = [f"The run stopped in {_article(band.full_title)}: {error.type}: {error.message}{both}."]
    if error.type == "IndexError" and not band.first_flags and not timeline.raised_directly:
        told.append("No first-module flag was left then: recomputes take one each.")
    return told


def _all_right(timeline: Timeline) -> tuple[str, ...]:
    moved = any(mark.kind != "run" for mark in timeline.marks)
    right = _RIGHT if moved else _NOTHING
    if timeline.violations:
        return (right, "What is wrong does not show in the queues: see the violations.")
    return (right,)


def _unseen(timeline: Timeline) -> list[str]:
    """Tell of what left a queue while its module was not watched, as in a recompute of its own."""
    told = []
    for row in timeline.rows:
        if row.unseen:
            those = ", ".join(map(str, row.unseen))
            told.append(f"Of {row.full_name} what was pushed as {those} left the queue outside its forwards.")
    return told


def _are(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"


def _recompute(timeline: Timeline, mark: Mark) -> str:
    return f"the recompute of iteration {_iteration(timeline, mark)}"


def _iteration(timeline: Timeline, mark: Mark) -> int | None:
    return timeline.band_of(mark).iteration


def _when(timeline: Timeline, mark: Mark) -> str:
    return _article(timeline.band_of(mark).full_title)


def _article(title: str) -> str:
    return f"the {title}"
