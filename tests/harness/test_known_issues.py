"""Known issues are data, and a rule matches what is known and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import case as c
from harness import known_issues
from harness.errors import HarnessFault
from harness.violations import OracleName, Violation

ISSUE = """
[[issue]]
id = "nested"
sentence = "Nested regions leave snapshots."
mechanism = "pytorch/distributed.py:activation_recompute_forward.__exit__"
releases = ["2.5.0", "2.20.2"]

[[issue.rule]]
features = ["nested regions"]
oracles = ["FIFO drained", "FP8 state"]
pinned = []
neighbour = ""
"""
PLAIN = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))
NESTED = c.Case(graph=c.Autocast(c.Region(c.Region(c.Linear()))), schedule=(c.Forward(), c.Backward()))


def violation(oracle: OracleName, message: str = "x") -> Violation:
    return Violation(oracle=oracle, iteration=0, message=message)


def issues(tmp_path: Path, text: str = ISSUE) -> tuple[known_issues.Issue, ...]:
    path = tmp_path / "known_issues.toml"
    path.write_text(text)
    return known_issues.load(path)


def explained(tmp_path: Path, case: c.Case, *violations: Violation, text: str = ISSUE) -> list[str]:
    return [issue.id for issue in known_issues.explain(case, violations, issues(tmp_path, text))]


def test_a_violation_is_known_where_feature_and_oracle_are(tmp_path: Path) -> None:
    assert explained(tmp_path, NESTED, violation("FIFO drained")) == ["nested"]


@pytest.mark.parametrize(
    ("case", "oracles"),
    [
        pytest.param(PLAIN, ("FIFO drained",), id="a neighbour without the feature"),
        pytest.param(NESTED, ("FIFO drained", "outputs"), id="an oracle that is not known to object"),
        pytest.param(NESTED, (), id="a case that held"),
    ],
)
def test_anything_else_is_new(tmp_path: Path, case: c.Case, oracles: tuple[OracleName, ...]) -> None:
    assert explained(tmp_path, case, *map(violation, oracles)) == []


def test_an_error_is_known_by_a_part_of_its_message(tmp_path: Path) -> None:
    text = ISSUE.replace('["FIFO drained", "FP8 state"]', '["same errors"]\nerrors = ["empty deque"]')
    assert explained(tmp_path, NESTED, violation("same errors", "IndexError: empty deque"), text=text)
    assert not explained(tmp_path, NESTED, violation("same errors", "IndexError: else"), text=text)


def test_two_issues_may_explain_a_case_together_and_neither_alone(tmp_path: Path) -> None:
    other = ISSUE.replace('"nested"', '"other"').replace('["FIFO drained", "FP8 state"]', '["outputs"]')
    both = (violation("outputs"), violation("FIFO drained"))
    assert explained(tmp_path, NESTED, *both, text=ISSUE + other) == ["nested", "other"]
    assert explained(tmp_path, NESTED, *both, text=other) == []


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
