"""The script of each case that shows an issue ends with 1, and that of a pinned one is short enough to send.

That of a neighbouring case ends with 0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import backends, reproducer
from harness.backends import te_version
from harness.corpus import seen_of
from tests.frontier.known import ISSUES, SHOWING, saved
from tests.harness.script_agreement import Ended

if TYPE_CHECKING:
    from harness.known_issues import Issue
    from harness.session import Session

ROOT = Path(__file__).parents[2]
NEIGHBOURS = sorted({rule.neighbour for issue in ISSUES for rule in issue.rule})


def script(name: str) -> str:
    """Return the script of a saved case, which is made of what was seen when it was saved."""
    case = saved(name)
    return reproducer.script(case.case, case.seen)


@pytest.fixture(scope="module")
def ended(te_session: Session, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Return how each script ended, by the case's name; they share a process, on TE as installed."""
    folder = tmp_path_factory.mktemp("scripts")
    for issue in ISSUES:
        for name in issue.cases:
            (folder / f"{name}.py").write_text(script(name))
    for name in NEIGHBOURS:
        # Nothing was seen of it, so it is judged first, as the command does.
        neighbour = saved(name).case
        text = reproducer.script(neighbour, seen_of(te_session.judge(neighbour)))
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "tests.harness.script_agreement", str(folder)]
    ran = subprocess.run(  # noqa: S603
        [*command, "--backend", backends.active().name], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return {name: Ended(*end) for name, end in json.loads(ran.stdout).items()}


@pytest.mark.parametrize(("issue", "name"), SHOWING)
def test_the_script_of_a_case_shows_its_fault(ended: dict[str, Ended], issue: Issue, name: str) -> None:
    if not issue.affects(te_version()):
        pytest.skip(f"TE {te_version()} has no such fault")
    assert ended[name].code == 1, ended[name].output
    assert "expected" in ended[name].output
    assert "observed" in ended[name].output
    assert "Traceback" not in ended[name].output


@pytest.mark.parametrize("name", sorted({name for issue in ISSUES for name in issue.pinned}))
def test_the_script_of_a_pinned_case_is_short(name: str) -> None:
    lines = script(name).splitlines()
    assert len(lines) <= reproducer.MOST_LINES
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_the_script_of_a_neighbouring_case_shows_none(ended: dict[str, Ended], name: str) -> None:
    assert ended[name].code == 0, ended[name].output


def test_each_known_issue_is_told_among_the_findings_with_the_script_of_the_case_named() -> None:
    told = (ROOT / "FINDINGS.md").read_text()
    named = dict(re.findall(r"\(findings/([\w-]+)\.py\); case\s+`corpus/known_issues/(\w+)\.json`", told))
    assert named.keys() == {issue.id for issue in ISSUES}
    for issue in ISSUES:
        assert named[issue.id] in issue.pinned
        assert (ROOT / "findings" / f"{issue.id}.py").read_text() == script(named[issue.id])
        assert f"{issue.releases[0]} to {issue.releases[1]}" in told
        assert f"- Upstream: {issue.upstream or 'none found'}." in " ".join(told.split())
