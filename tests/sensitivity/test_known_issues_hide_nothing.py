"""Known issues explain what is known, and not a new fault that meets a case with their features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness import known_issues, mutants, record
from harness.backends import te_version
from harness.mutation import Planted
from strategies.frontier import frontier

if TYPE_CHECKING:
    from harness.session import Session

CASES = 60
SEED = 99

pytestmark = pytest.mark.emulation


@pytest.mark.parametrize("name", ["guard-reverted", "bypass-reverted", "bypass-context-lost"])
def test_a_reverted_part_of_the_fix_is_new_to_a_frontier_run(te_session: Session, name: str) -> None:
    if te_version() != "2.20.2":
        pytest.skip("the parts of the fix are those of 2.20.2")
    issues = known_issues.of_release(te_version())
    cases = record.draw(frontier(), CASES, SEED)
    held = [case for case in cases if te_session.judge(case).held]
    planted = Planted(mutants.find(f"named:{name}"))
    planted.plant()
    try:
        failed = [
            (case, verdict.violations) for case in held if (verdict := te_session.judge(case)).violations
        ]
    finally:
        planted.remove()
    new = [case for case, violations in failed if not known_issues.explain(case, violations, issues)]
    assert len(new) > 0.8 * len(failed) > 0
