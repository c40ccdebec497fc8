"""How the known issues read: in lines on a terminal, and as a page of the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import rediscovery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.known_issues import Issue, Rule
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
    told = [f"- Mechanism: `{issue.mechanism}`"]
    if issue.upstream:
        told.append(f"- Upstream: {issue.upstream}")
    told += map(_rule, issue.rule)
    return f"## {issue.id}\n\n{issue.sentence}\n\n" + "\n".join(told) + "\n"


def _rule(rule: Rule) -> str:
    errors = f" ({'; '.join(f'`{part}`' for part in rule.errors)})" if rule.errors else ""
    cases = ", ".join(f"`{name}`" for name in rule.cases)
    return (
        f"- With {' and '.join(rule.features)}: {', '.join(rule.oracles)}{errors}. Cases: {cases};"
        f" without it, `{rule.neighbour}` holds."
    )
