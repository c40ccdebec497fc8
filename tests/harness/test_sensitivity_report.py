"""What a sensitivity campaign leaves: a report that can be read back, and a page that tells the truth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import backends, mutants, survivors
from harness import case as c
from harness import sensitivity_report as reports
from harness.errors import InvalidInput
from harness.sensitivity import Outcome, Plan
from harness.trial import Sole, Trial

if TYPE_CHECKING:
    from harness.survivors import Survivor

PAGE = Path(__file__).parents[2] / "docs" / "sensitivity.md"
KILLED = "named:guard-reverted"
ALIVE = "pytorch/distributed.py:checkpoint:delete:24"
PLAN = Plan(mutants=(KILLED, ALIVE), cases=7)
SMALLEST = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Evaluate(), c.Forward(), c.Backward()))


def outcome() -> Outcome:
    killed = Trial(mutant=KILLED, outcome="killed", by=("outputs", "pairing"), case=3, smallest=SMALLEST)
    return Outcome(
        trials={KILLED: killed, ALIVE: Trial(mutant=ALIVE, outcome="survived", reaching=2)},
        sole={KILLED: Sole(KILLED, {"pairing": 4})},
        where={"transformer_engine": backends.te_version(), "torch": "2", "backend": "cpu"},
    )


def known() -> dict[str, Survivor]:
    return {ALIVE: survivors.Survivor(ALIVE, backends.te_version(), "outside", "A | reason.")}


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(reports.campaign_json(PLAN, outcome(), known(), []))
    assert reports.load(path) == (PLAN, outcome())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"format": 1', '"format": 2', "reports of format 1 are known, not of 2"),
        ('"trials"', '"trails"', "not a report of a sensitivity campaign"),
        (backends.te_version(), "0.1", r"a report of release 0\.1; show it with --release"),
    ],
)
def test_a_report_that_is_none_is_told_in_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(reports.campaign_json(PLAN, outcome(), known(), []).decode().replace(old, new))
    with pytest.raises(InvalidInput, match=words):
        reports.load(path)


def test_a_page_tells_of_a_kill_its_case_and_oracles_and_of_a_survivor_its_reason() -> None:
    page = reports.markdown(PLAN, outcome(), known())
    assert (
        "| named:guard-reverted | phase 1 pushes in training mode only | killed | 3 | outputs, pairing |"
        " 1 module, 1 iteration, 1 evaluation |"
    ) in page
    assert "| delete:24 | delete `del determinism_check, debug` | outside |  |  | A \\| reason. |" in page
    assert "| pairing | 1 | named:guard-reverted |" in page
    assert "| 2 | 1 | 0 | 1 | 0 | 3 | 3 |" in page


def test_the_page_of_the_documents_has_every_mutant_and_the_reasons_of_today() -> None:
    """A row for each, under its function; killed, or with the reason that stands in the data file."""
    page = PAGE.read_text()
    release = re.search(r"^Transformer Engine (\S+),", page, re.MULTILINE)
    if release is None or release[1] != backends.te_version():
        pytest.skip(f"the page is of release {release and release[1]}")
    explained = survivors.load(backends.te_version())
    sections = dict(re.findall(r"^## (.+)\n\n([^#]*)", page, re.MULTILINE))
    for mutant in mutants.matching(("named:*", "pytorch/*")):
        named = mutant.id.startswith("named:")
        section = sections["named" if named else f"{mutant.file} {mutant.function}"]
        name = mutant.id if named else ":".join(mutant.id.split(":")[-2:])
        (row,) = [line for line in section.splitlines() if line.startswith(f"| {name} |")]
        if mutant.id in explained:
            why = explained[mutant.id]
            assert f"| {why.kind} |  |  | {why.reason} |" in row
        else:
            assert "| killed |" in row, mutant.id
