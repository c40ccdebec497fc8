"""The report of a run, as a person reads it in a minute: what is new first. Formats only; decides nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness import known_issues
from harness.beyond import BEYOND
from harness.document import Block, Code, Folded, Heading, Paragraph, Rows
from harness.features import CATALOGUE
from harness.files import printable, quoted
from harness.sentence import describe
from harness.violations import ORACLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness.events import Started
    from harness.run_summary import Finding, Summary, Verdict

_MOST_VIOLATIONS = 8
"""Lines of one finding; replaying it shows all."""

_MOST_IN_FULL = 20
"""Findings of each sort that are told in full: a page of a job on GitHub has room for a megabyte."""

_MOST_RUNS = 50

_VERDICTS: dict[Verdict, str] = {
    "held": "nothing new",
    "violated": "violated",
    "nothing judged": "no case was judged",
    "fault": "the harness failed",
}


def blocks(summary: Summary, timeline: Callable[[str], str | None] = lambda _case: None) -> list[Block]:
    """Return the report; ``timeline`` finds the page that draws a case, if any, by its fingerprint."""
    return [
        Heading(1, verdict(summary)),
        Rows(("verdict", *(name for name, _ in _overview(summary))), (_overview_row(summary),)),
        *(Paragraph(remark) for remark in _remarks(summary)),
        *_findings("New findings", summary.new, timeline),
        *_findings("Crashes", summary.crashes, timeline),
        *_findings("Found by others before, and failing still", summary.shared, timeline),
        *_known(summary),
        *_coverage(summary),
        *_runs(summary),
    ]


def verdict(summary: Summary) -> str:
    """Return in a line what came of a run."""
    told = [
        _count(len(summary.new), "new finding"),
        _count(len(summary.crashes), "crash", "crashes"),
        _count(
            len(summary.shared), "finding of others that fails still", "findings of others that fail still"
        ),
    ]
    found = ", ".join(filter(None, told))
    if summary.verdict == "violated" and found:
        return found
    return "; ".join(filter(None, [_VERDICTS[summary.verdict], found]))


def _overview(summary: Summary) -> list[tuple[str, str]]:
    known = summary.tally.known
    return [
        ("cases", str(summary.tally.cases)),
        ("cases per second", f"{summary.speed:.1f}"),
        ("new findings", str(len(summary.new))),
        ("crashes", str(len(summary.crashes))),
        ("known issues seen", f"{len(known)}, {known.total()} times" if known else "none"),
    ]


def _overview_row(summary: Summary) -> tuple[str, ...]:
    return (summary.verdict, *(value for _, value in _overview(summary)))


def _remarks(summary: Summary) -> list[str]:
    """Return what keeps a run from being whole."""
    told = [quoted(f"Ended by an error: {ended.fault}") for ended in summary.faults]
    if summary.interrupted:
        told.append("Interrupted before all cases were drawn.")
    if summary.unfinished:
        runs = _count(summary.unfinished, "run has", "runs have")
        told.append(
            f"{runs} told of no end: killed, or still going on. What was counted last may be missing."
        )
    tally = summary.tally
    if tally.raised:
        told.append(f"In {_count(tally.raised, 'case')} both runs raised alike: little was compared.")
    return told


# --- Findings ----------------------------------------------------------------------------------------


def _findings(title: str, found: Sequence[Finding], timeline: Callable[[str], str | None]) -> Iterator[Block]:
    if not found:
        return
    yield Heading(2, title)
    for number, finding in enumerate(found[:_MOST_IN_FULL], 1):
        yield Heading(3, quoted(f"{number}. {finding.kind}"))
        yield from _finding(finding, timeline(finding.fingerprint))
    rest = found[_MOST_IN_FULL:]
    if rest:
        yield Rows(
            ("kind", "case", "replay"), tuple((quoted(f.kind), f.fingerprint, _replay(f)) for f in rest)
        )


def _finding(finding: Finding, timeline: str | None) -> Iterator[Block]:
    yield Paragraph(f"Case {finding.fingerprint} of the {_domain(finding)}: {describe(finding.saved.case)}")
    seen = finding.saved.seen
    lines = [quoted(violation) for violation in seen.violations]
    left = len(lines) - _MOST_VIOLATIONS
    if left > 0:
        lines[_MOST_VIOLATIONS:] = [f"and {left} more"]
    if seen.ending:
        lines = [quoted(f"ended its process: {seen.ending}")]
    if lines:
        yield Code("\n".join(lines))
    if finding.path is None:
        yield Paragraph(
            f"Not saved: write the case as data, below, into {finding.fingerprint}.json, and replay it:"
        )
    else:
        yield Paragraph("Replay it:")
    yield Code(_replay(finding), "sh")
    if timeline is not None:
        yield Paragraph("Timeline: who took whose snapshot", timeline)
    if finding.script is None:
        yield Paragraph(quoted(f"No script: {finding.why_no_script}"))
    else:
        yield Folded(
            "Script of torch and Transformer Engine alone", (Code(finding.script.rstrip("\n"), "python"),)
        )
    data = msgspec.json.format(c.encode(finding.saved.case), indent=2).decode()
    yield Folded("The case as data", (Code(data, "json"),))


def _domain(finding: Finding) -> str:
    return quoted(finding.domain) or "tests"


def _replay(finding: Finding) -> str:
    return printable(finding.command or f"te-harness replay {finding.fingerprint}.json")


# --- What was covered --------------------------------------------------------------------------------


def _known(summary: Summary) -> list[Block]:
    known = summary.tally.known
    if not known:
        return []
    sentences = {issue.id: issue.sentence for issue in known_issues.load()}
    rows = tuple((name, str(count), sentences.get(name, "")) for name, count in known.most_common())
    return [Folded(f"Known issues seen: {len(rows)}", (Rows(("issue", "cases", "what it is"), rows),))]


def _coverage(summary: Summary) -> list[Block]:
    tally = summary.tally
    if not tally.cases:
        return []
    frontier = any(tally.features[name] for name in BEYOND)
    names = [*CATALOGUE, *(BEYOND if frontier else ())]
    never = [name for name in names if not tally.features[name]]
    counts = tuple((name, str(tally.features[name])) for name in names)
    oracles = tuple((name, str(tally.oracles[name])) for name in ORACLES)
    evaluated = sum(tally.oracles[name] > 0 for name in ORACLES)
    found: list[Block] = [
        Folded(
            f"Features drawn: {len(names) - len(never)} of {len(names)}",
            (Paragraph(f"Never: {', '.join(never) or 'none'}."), Rows(("feature", "cases"), counts)),
        ),
        Folded(f"Oracles evaluated: {evaluated} of {len(ORACLES)}", (Rows(("oracle", "cases"), oracles),)),
    ]
    if +tally.lacking:
        rows = tuple((what, str(count)) for what, count in tally.lacking.most_common())
        title = f"Not run, for what is lacking here: {_count(tally.lacking.total(), 'case')}"
        found.append(Folded(title, (Rows(("lacking", "cases"), rows),)))
    return found


# --- What ran ----------------------------------------------------------------------------------------


def _runs(summary: Summary) -> list[Block]:
    drawn = tuple(
        (name, str(part.tally.cases), f"{part.seconds:.1f}", f"{part.speed:.1f}")
        for name, part in sorted(summary.drawn.items())
    )
    runs = tuple(map(_run, summary.started[:_MOST_RUNS]))
    places = [
        Rows((f"place {number}", ""), (*where.items(), ("why this backend", reason)))
        for number, (where, reason) in enumerate(zip(summary.where, summary.reasons, strict=True), 1)
        if number <= _MOST_RUNS
    ]
    return [
        Heading(2, "What ran"),
        Rows(("domain", "cases", "seconds", "cases per second"), drawn),
        Rows(("begun (UTC)", "what", "seed", "asked for", "workers"), runs),
        *([Folded("Where", tuple(places))] if places else []),
    ]


def _run(started: Started) -> tuple[str, ...]:
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(started.time))
    asked = [] if started.cases is None else [_count(started.cases, "case") or "no case"]
    if started.seconds is not None:
        asked.append(f"{started.seconds:g} s")
    if started.shard[1] > 1:
        asked.append("shard {} of {}".format(*started.shard))
    what = " ".join([started.run, *started.domains])
    return begun, what, str(started.seed), ", ".join(asked), str(max(started.workers, 1))


def _count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun; nothing for none."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}" if number else ""
