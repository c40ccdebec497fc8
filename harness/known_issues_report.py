"""How the known issues read: in lines on a terminal, and as a page of the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import rediscovery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.known_issues import Issue
    from harness.rediscovery import Firsts

_PREAMBLE = """# Known issues

Faults of Transformer Engine in the frontier, the domain beyond what is promised. This page is written by
`te-harness known-issues --markdown`; what it says stands in `harness/known_issues.toml`, and the cases in
`corpus/known_issues`. `tests/frontier` fails where one of them no longer shows its fault.

"""


def lines(issues: Sequence[Issue]) -> list[str]:
    """Return two lines for each issue."""
    return [
        line
        for issue in issues
        for line in (f"{issue.id}  {issue.releases[0]} to {issue.releases[1]}", f"  {issue.sentence}")
    ]


def markdown(issues: Sequence[Issue], found: Sequence[Firsts], most: int) -> str:
    """Return the page: a table of all issues with when each was met again, and a section for each."""
    rows = [
        "| issue | releases | median case | seeds that met it |",
        "| --- | --- | --- | --- |",
        *(_row(issue, found, most) for issue in issues),
    ]
    told = (
        f"*Median case*: of {len(found)} runs with seeds of their own, each of at most {most} cases drawn as"
        " if nothing were known, the median number of the first case that shows the issue."
    )
    return _PREAMBLE + "\n".join([*rows, "", told, "", *map(section, issues)])


def _row(issue: Issue, found: Sequence[Firsts], most: int) -> str:
    median = rediscovery.median_case(found, issue.id, most)
    met = sum(issue.id in firsts for firsts in found)
    told = f"over {most}" if median is None else str(median)
    releases = " to ".join(issue.releases)
    return f"| [{issue.id}](#{issue.id}) | {releases} | {told} | {met} of {len(found)} |"


def section(issue: Issue) -> str:
    """Return what the page says of an issue, below the table."""
    rules = "\n".join(
        f"- With {' and '.join(rule.features)}: {', '.join(rule.oracles)}"
        + (f" ({'; '.join(f'`{part}`' for part in rule.errors)})" if rule.errors else "")
        for rule in issue.rule
    )
    upstream = f"\n- Upstream: {issue.upstream}" if issue.upstream else ""
    cases = ", ".join(f"`{name}`" for name in issue.pinned)
    return (
        f"## {issue.id}\n\n{issue.sentence}\n\n- Mechanism: `{issue.mechanism}`\n- Cases: {cases};"
        f" beside them `{issue.neighbour}` holds{upstream}\n{rules}\n"
    )
