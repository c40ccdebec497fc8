"""``te-harness replay``: what has become of saved cases, and which of them may go."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness import corpus
from harness.corpus import SavedCase, Seen
from harness.outside import Ended
from harness.replay import became
from harness.verdict import Verdict
from harness.violations import Violation
from tests.harness.commands import CASE, PLANTED, complaint, here

PAIRING = Violation(oracle="pairing", message="popped another", iteration=0)
DRAINED = Violation(oracle="FIFO drained", message="1 left", iteration=0)


def _verdict(*violations: Violation) -> Verdict:
    return Verdict(fingerprint=CASE.fingerprint, violations=violations)


@pytest.mark.parametrize(
    ("seen", "answer", "word"),
    [
        (Seen(), _verdict(), "held"),
        (Seen(), _verdict(PAIRING), "violated"),
        (Seen(), Ended("SIGSEGV"), "violated"),
        (Seen(violations=(PAIRING,)), _verdict(), "fixed"),
        (Seen(violations=(PAIRING,)), _verdict(DRAINED, PAIRING), "reproduced"),
        (Seen(violations=(PAIRING,)), _verdict(DRAINED), "changed"),
        (Seen(ending="SIGSEGV"), Ended("SIGSEGV"), "reproduced"),
        (Seen(ending="SIGSEGV"), Ended("SIGABRT"), "changed"),
        (Seen(ending="SIGSEGV"), _verdict(PAIRING), "changed"),
        (Seen(ending="SIGSEGV"), _verdict(), "fixed"),
    ],
)
def test_a_case_becomes_what_it_did_then_and_does_now(seen: Seen, answer: Verdict | Ended, word: str) -> None:
    assert became(SavedCase(case=CASE, seen=seen), answer) == word


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus with one case, saved by a campaign that it failed."""
    result = here("fuzz", "--cases", 1, "--seed", 5, "--corpus", tmp_path, *PLANTED)
    assert result.exit_code == 1
    return tmp_path


def test_a_saved_failure_is_reproduced_fixed_and_removed_when_told_so(folder: Path) -> None:
    (path,) = folder.iterdir()
    again = here("replay", path, *PLANTED, "--prune")
    assert (again.exit_code, again.stdout.split()[:2]) == (1, ["reproduced", path.stem])
    assert "pairing [iteration 0" in again.stdout
    elsewhere = here("replay", folder, "--prune")
    assert (elsewhere.exit_code, elsewhere.stdout.split()[:2]) == (0, ["fixed", path.stem])
    assert elsewhere.stdout.splitlines()[-1].startswith("  kept: it was seen with checkpointer tests.harness")
    # As if it had been seen with the checkpointer that is right.
    saved = corpus.load(path)
    path.unlink()
    corpus.save(
        folder, msgspec.structs.replace(saved, where={**saved.where, "checkpointer": "te.checkpoint"})
    )
    assert here("replay", path).exit_code == 0
    assert path.exists()
    assert here("replay", path, "--prune").stdout.splitlines()[-1] == f"  removed {path}"
    assert not path.exists()


def test_a_case_saved_for_no_failure_holds_or_is_violated(tmp_path: Path) -> None:
    path = corpus.save(tmp_path, SavedCase(case=CASE))
    held = here("replay", path, "--prune")
    assert (held.exit_code, held.stdout.split()[:2]) == (0, ["held", CASE.fingerprint])
    violated = here("replay", tmp_path, *PLANTED)
    assert (violated.exit_code, violated.stdout.split()[:2]) == (1, ["violated", CASE.fingerprint])
    assert path.exists()


def test_a_case_on_which_the_harness_fails_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    failing, other = CASE, msgspec.structs.replace(CASE, seed=CASE.seed + 1)
    paths = [corpus.save(tmp_path, SavedCase(case=case)) for case in (failing, other)]
    result = here("replay", *paths, "--checkpointer", "tests.harness.planted:breaks_once")
    assert result.exit_code == 3
    assert complaint(result).startswith(f"te-harness: the harness failed: {failing.fingerprint}: ")
    assert result.stdout.split()[:2] == ["held", other.fingerprint]


def test_the_beginning_of_a_fingerprint_names_a_case_of_the_corpus(tmp_path: Path) -> None:
    corpus.save(tmp_path / "crashes", SavedCase(case=CASE))
    result = here("replay", CASE.fingerprint[:6], "--corpus", tmp_path)
    assert (result.exit_code, result.stdout.split()[:2]) == (0, ["held", CASE.fingerprint])
    unknown = here("replay", "0000", "--corpus", tmp_path)
    assert (unknown.exit_code, complaint(unknown)) == (2, "te-harness: 0000: there is no such file.")


def test_a_fingerprint_that_two_begin_with_names_none(tmp_path: Path) -> None:
    for name in ("abcd1", "abcd2"):
        (tmp_path / f"{name}.json").write_text("{}")
    result = here("replay", "abcd", "--corpus", tmp_path)
    assert result.exit_code == 2
    assert complaint(result).endswith(f"2 cases in {tmp_path} begin so; give more of the fingerprint.")
