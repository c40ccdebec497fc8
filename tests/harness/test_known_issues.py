"""Known issues are data, and a rule matches what is known and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import case as c
from harness import known_issues
from harness.errors import HarnessFault
from harness.verdict import Verdict
from harness.violations import OracleName, Violation

ISSUE = """
[[issue]]
id = "nested"
sentence = "Nested regions leave snapshots."
mechanism = "pytorch/distributed.py:activation_recompute_forward.__exit__"
releases = ["2.5.0", "2.20.2"]
features = ["nested regions"]
oracles = ["FIFO drained", "FP8 state"]
pinned = []
"""
PLAIN = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
NESTED = c.Case(graph=c.Autocast(c.Region(c.Region(c.Linear()))), schedule=(c.Forward(), c.Backward()))


def verdict(case: c.Case, *oracles: OracleName) -> Verdict:
    violations = tuple(Violation(oracle=name, iteration=0, message="x") for name in oracles)
    return Verdict(fingerprint=case.fingerprint, violations=violations)


def issues(tmp_path: Path, text: str = ISSUE) -> tuple[known_issues.Issue, ...]:
    path = tmp_path / "known_issues.toml"
    path.write_text(text)
    return known_issues.load(path)


def test_a_violation_is_known_where_feature_and_oracles_are(tmp_path: Path) -> None:
    issue = known_issues.explain(NESTED, verdict(NESTED, "FIFO drained"), issues(tmp_path))
    assert issue is not None
    assert issue.id == "nested"


@pytest.mark.parametrize(
    ("case", "oracles"),
    [
        pytest.param(PLAIN, ("FIFO drained",), id="a neighbour without the feature"),
        pytest.param(NESTED, ("FIFO drained", "outputs"), id="an oracle that is not known to object"),
        pytest.param(NESTED, (), id="a case that held"),
    ],
)
def test_anything_else_is_new(tmp_path: Path, case: c.Case, oracles: tuple[OracleName, ...]) -> None:
    assert known_issues.explain(case, verdict(case, *oracles), issues(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ISSUE + ISSUE, "nested comes twice"),
        (ISSUE.replace("nested regions", "flying regions"), "there is no feature 'flying regions'"),
        ("issue = 3", "Expected `array`"),
    ],
)
def test_a_file_of_issues_that_makes_no_sense_is_a_fault(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(HarnessFault, match=complaint):
        issues(tmp_path, text)


def test_the_issues_that_come_with_the_harness_can_be_read() -> None:
    assert known_issues.load() is not None
