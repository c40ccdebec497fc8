"""How the museum reads: as a table on a terminal, as a page of the documents, and as JSON."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

from harness import case as c
from harness import releases
from harness.report import JSON_FORMAT, row_text
from harness.sentence import describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.museum import Bug, Difference, Found
    from harness.survey import Status

_LINE = 110
_SIGNS: Mapping[Status, str] = {"violated": "✗", "held": "·", "cannot run": "-", "failed": "?"}


def table_lines(bugs: Sequence[Bug], found: Found) -> list[str]:
    """Return the table of what was found, as aligned text: rows are bugs, columns releases."""
    names = [_short(release) for release in releases.KNOWN]
    widest = max(len(bug.id) for bug in bugs)
    lines = [" ".join(["".ljust(widest), *names])]
    for bug in bugs:
        signs = [_SIGNS[found[bug.id, release].status] for release in releases.KNOWN]
        cells = [sign.center(len(name)) for sign, name in zip(signs, names, strict=True)]
        lines.append(" ".join([bug.id.ljust(widest), *cells]).rstrip())
    return [*lines, "✗ violated, · held, - cannot run, ? no verdict for a fault"]


def difference_lines(differences: Sequence[Difference]) -> list[str]:
    """Return a line for each case that did not come out as expected."""
    return [
        f"{difference.bug} under {difference.found.release}: expected {row_text(difference.expected)};"
        f" found {row_text(difference.found)}"
        for difference in differences
    ]


def markdown(bugs: Sequence[Bug], cases: Sequence[c.Case]) -> str:
    """Return the page of the documents: the table of what is known, and then each bug."""
    names = [_short(release) for release in releases.KNOWN]
    lines = [
        "# The museum",
        "",
        "Bugs of Transformer Engine's activation checkpointing that were fixed, and how each one's case does",
        "under every release, as installed: ✗ violated, · held, - cannot run. This page is written by",
        "`te-harness museum --markdown`; what it says stands in `harness/museum.toml`.",
        "",
        f"| bug | {' | '.join(names)} |",
        f"| --- |{' :-: |' * len(names)}",
    ]
    for bug in bugs:
        by_release = {row.release: row for row in bug.expected()}
        signs = [_SIGNS[by_release[release].status] for release in releases.KNOWN]
        lines.append(f"| [{bug.id}](#{bug.id}) | {' | '.join(signs)} |")
    for bug, case in zip(bugs, cases, strict=True):
        lines += ["", *_section(bug, case)]
    return "\n".join(lines) + "\n"


def _section(bug: Bug, case: c.Case) -> list[str]:
    told = [
        f"- Mechanism: {bug.mechanism}",
        f"- Upstream: {bug.reference}",
        f"- Case `{bug.case}`: {describe(case)}",
        *(f"- Violated in {failing.releases}: {', '.join(failing.kinds)}." for failing in bug.fails),
        *(f"- Cannot run in {refusing.releases}: {refusing.reason}." for refusing in bug.cannot_run),
    ]
    return [f"## {bug.id}", "", bug.title, "", *map(_wrapped, told)]


def _wrapped(item: str) -> str:
    return textwrap.fill(item, _LINE, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def museum_json(
    bugs: Sequence[Bug], cases: Sequence[c.Case], found: Found, differences: Sequence[Difference]
) -> bytes:
    """Return all that was found as indented JSON."""
    data = {
        "format": JSON_FORMAT,
        "bugs": [
            {
                "id": bug.id,
                "fingerprint": bug.case,
                "case": c.plain(case),
                "releases": [found[bug.id, release] for release in releases.KNOWN],
            }
            for bug, case in zip(bugs, cases, strict=True)
        ],
        "differences": differences,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def _short(release: str) -> str:
    """Return a release as its makers call it: 2.19.0 is 2.19."""
    parts = release.split(".")
    return ".".join(part for place, part in enumerate(parts) if place != 2 or part != "0")
