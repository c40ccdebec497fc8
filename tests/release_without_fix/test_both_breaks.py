"""On a release that lacks the fix the harness finds both breaks, small and apart."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness import backends
from harness import case as c
from harness.correction import PARTS, Correction, Part
from harness.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVAL_BREAK = "same errors: no snapshot to pop"
LEAK = "FIFO drained"
FAILING_NAMED_CASES = {
    "test_module_in_train_or_eval_mode[reentrant-eval]",
    "test_module_in_train_or_eval_mode[non-reentrant-eval]",
    "test_mode_flipped_between_forward_and_recompute[reentrant-eval]",
    "test_mode_flipped_between_forward_and_recompute[non-reentrant-eval]",
    "test_eval_module_in_the_middle_of_a_reentrant_region[Linear]",
    "test_eval_module_in_the_middle_of_a_reentrant_region[LayerNormMLP]",
    "test_repeated_forwards_without_backward[reentrant-train]",
    "test_repeated_forwards_without_backward[reentrant-eval]",
    "test_repeated_forwards_without_backward[non-reentrant-train]",
    "test_repeated_forwards_without_backward[non-reentrant-eval]",
    "test_gradients_explicitly_enabled_under_no_grad[reentrant-context_fn]",
    "test_gradients_explicitly_enabled_under_no_grad[reentrant-callable]",
    "test_gradients_explicitly_enabled_under_no_grad[non-reentrant-context_fn]",
    "test_gradients_explicitly_enabled_under_no_grad[non-reentrant-callable]",
}
"""What stays is training mode at the forward, with a backward: 4 of the 18."""

EVAL_CASE = c.Case(graph=c.Autocast(c.Region(c.Linear(training=False))), schedule=(c.Forward(), c.Backward()))
LEAK_CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Evaluate(), c.Forward(), c.Backward()))
INELIGIBLE_CASE = c.Case(
    graph=c.Autocast(c.Chain((c.Region(c.Linear()), c.Linear()))),
    schedule=(c.Forward(), c.Backward()),
    input_requires_grad=False,
)


def iterations(case: c.Case) -> int:
    return sum(isinstance(step, c.Forward) for step in case.schedule)


@pytest.mark.parametrize("seed", [0, 1])
def test_fifty_cases_as_installed_find_both_breaks_shrunk_to_one_module_and_iteration(
    tmp_path: Path, seed: int
) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "harness", "fuzz", "--te", "installed", "--cases", "50"]
    command += ["--workers", "1", "--backend", backends.active().name, "--seed", str(seed)]
    command += ["--corpus", str(tmp_path / "corpus"), "--json", str(report)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)  # noqa: S603

    assert finished.returncode == 1, finished.stderr
    failures = msgspec.json.decode(report.read_bytes())["failures"]
    found = {failure["kind"]: failure["case"] for failure in failures}
    assert {EVAL_BREAK, LEAK} <= set(found)
    for kind in (EVAL_BREAK, LEAK):
        case = msgspec.convert(found[kind], c.Case)
        assert (len(c.modules(case)), iterations(case)) == (1, 1)


def test_the_named_cases_fail_as_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "tests/contract/test_named_cases.py", "--te", "installed"]
    command += ["--backend", backends.active().name, "-q", "--tb=no", "-rf", "-p", "no:cacheprovider"]
    command += ["--corpus", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)  # noqa: S603

    lines = [line for line in finished.stdout.splitlines() if line.startswith("FAILED")]
    assert {line.split("::")[1].split(" ")[0] for line in lines} == FAILING_NAMED_CASES


@pytest.fixture
def installed(te_session: Session) -> Iterator[Session]:
    """TE as it is installed, the session's correction taken out for the time of a test."""
    te_session.correction.remove()
    yield Session(te_session.backend, "installed")
    te_session.correction.apply()


AUTOCAST_INSIDE_CASE = c.Case(
    graph=c.Region(c.Autocast(c.Linear()), use_reentrant=False), schedule=(c.Forward(), c.Backward())
)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_correction_mends_its_own_break_and_no_other(installed: Session, part: Part) -> None:
    if part not in installed.lacking:
        pytest.skip("the installed TE has this part")
    correction = Correction(frozenset({part}))
    correction.apply()
    try:
        ineligible = installed.run_both(INELIGIBLE_CASE)[1]
        mended = {
            "stash in eval mode": installed.judge(EVAL_CASE).held,
            "bypass without grad": installed.judge(LEAK_CASE).held,
            "skip ineligible": not any(event.pushed for event in ineligible.events),
            "autocast inside": installed.judge(AUTOCAST_INSIDE_CASE).held,
        }
    finally:
        correction.remove()

    assert {name for name, held in mended.items() if held and name in installed.lacking} == {part}
