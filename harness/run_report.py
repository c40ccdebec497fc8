"""The report of a run, as a person reads it in a minute: what is new first. Formats only; decides nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness import known_issues
from harness.beyond import BEYOND
from harness.document import Block, Code, Folded, Heading, Paragraph, Rows
from harness.features import CATALOGUE
from harness.report import violation_lines
from harness.sentence import describe
from harness.violations import ORACLES

if TYPE_CHECKING:
    from harness.events import Started
    from harness.run_summary import Finding, Summary

_MOST_VIOLATIONS = 8
"""Lines of one finding; replaying it shows all."""


def blocks(summary: Summary) -> list[Block]:
    """Return the report."""
    return [
        Heading(1, verdict(summary)),
        Rows(("", ""), tuple(_overview(summary))),
        *(block for finding in summary.findings for block in _finding(finding)),
        *_known(summary),
        *_coverage(summary),
        *_runs(summary),
    ]


def verdict(summary: Summary) -> str:
    """Return in a line what came of a run."""
    new = sum(not finding.crash for finding in summary.findings)
    crashes = len(summary.findings) - new
    told = [f"{new} new finding{'s' * (new != 1)}"] * bool(new)
    told += [f"{crashes} crash{'es' * (crashes != 1)}"] * bool(crashes)
    told += ["the harness failed"] * bool(summary.faults)
    if told:
        return ", ".join(told)
    return "nothing new" if summary.cases else "no case was judged"


def _overview(summary: Summary) -> list[tuple[str, str]]:
    first = summary.where[0] if summary.where else {}
    seen = summary.known
    rows = [
        ("cases", ", ".join(f"{d.tally.cases} of the {name}" for name, d in sorted(summary.drawn.items()))),
        ("speed", f"{summary.speed:.1f} cases per second, {summary.seconds:.0f} s"),
        ("new findings", str(sum(not finding.crash for finding in summary.findings))),
        ("crashes", str(sum(finding.crash for finding in summary.findings))),
        ("known issues seen", f"{len(seen)}, in {seen.total()} cases" if seen else "none"),
        ("Transformer Engine", f"{first.get('transformer_engine', '?')}, {first.get('te_mode', '?')}"),
        (
            "ran on",
            f"{first.get('backend', '?')}: {first.get('device', '?')}, torch {first.get('torch', '?')}",
        ),
        ("seeds", ", ".join(str(started.seed) for started in summary.started)),
    ]
    if summary.interrupted or summary.unfinished:
        rows.append(("cut short", "interrupted" if summary.interrupted else "a run has told of no end"))
    return rows + [("the harness failed", fault) for fault in summary.faults]


def _finding(finding: Finding) -> list[Block]:
    case = finding.saved.case
    found: list[Block] = [
        Heading(2, finding.kind),
        Paragraph(f"Case {finding.fingerprint} of the {finding.domain or 'tests'}: {describe(case)}"),
    ]
    lines = [line.strip() for line in violation_lines(finding.saved.seen.violations)]
    left = len(lines) - _MOST_VIOLATIONS
    if lines:
        more = [f"and {left} more"] * (left > 0)
        found.append(Code("\n".join([*lines[:_MOST_VIOLATIONS], *more])))
    if finding.command is not None:
        found.append(Code(finding.command, "sh"))
    if finding.timeline is not None:
        found.append(Paragraph("timeline: who took whose snapshot", finding.timeline))
    if finding.script is None:
        found.append(Paragraph(f"No script: {finding.why_no_script}"))
    else:
        title = "a script of torch and Transformer Engine alone"
        found.append(Folded(title, (Code(finding.script.rstrip("\n"), "python"),)))
    return found


def _known(summary: Summary) -> list[Block]:
    if not summary.known:
        return []
    sentences = {issue.id: issue.sentence for issue in known_issues.load()}
    rows = tuple((name, str(count), sentences.get(name, "")) for name, count in summary.known.most_common())
    return [Folded(f"known issues seen: {len(rows)}", (Rows(("issue", "cases", "what it is"), rows),))]


def _coverage(summary: Summary) -> list[Block]:
    if not summary.cases:
        return []
    frontier = bool(summary.drawn.keys() - {"contract"})
    names = [*CATALOGUE, *(BEYOND if frontier else ())]
    drawn = [name for name in names if summary.features[name]]
    never = [name for name in names if not summary.features[name]]
    evaluated = sum((d.tally.oracles for d in summary.drawn.values()), start=type(summary.features)())
    counts = tuple((name, str(summary.features[name])) for name in names)
    oracles = tuple((name, str(evaluated[name])) for name in ORACLES)
    lacking = sum((d.tally.lacking for d in summary.drawn.values()), start=type(summary.features)())
    found: list[Block] = [
        Folded(
            f"features drawn: {len(drawn)} of {len(names)}",
            (Paragraph(f"Never: {', '.join(never) or 'none'}."), Rows(("feature", "cases"), counts)),
        ),
        Folded("oracles evaluated", (Rows(("oracle", "cases"), oracles),)),
    ]
    if lacking:
        rows = tuple((what, str(count)) for what, count in lacking.most_common())
        found.append(Folded("not run, for what is lacking here", (Rows(("lacking", "cases"), rows),)))
    return found


def _runs(summary: Summary) -> list[Block]:
    rows = tuple(map(_run, summary.started))
    places = tuple((name, value) for where in summary.where for name, value in where.items())
    return [
        Folded(
            "what was run, and where",
            (Rows(("begun (UTC)", "what", "seed", "asked for", "workers"), rows), Rows(("", ""), places)),
        )
    ]


def _run(started: Started) -> tuple[str, ...]:
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(started.time))
    asked = [] if started.cases is None else [f"{started.cases} cases"]
    if started.seconds is not None:
        asked.append(f"{started.seconds:g} s")
    if started.shard[1] > 1:
        asked.append("shard {} of {}".format(*started.shard))
    what = " ".join([started.run, *started.domains])
    return begun, what, str(started.seed), ", ".join(asked), str(started.workers)
