"""Every survivor has its reason, and no reason outlives what it explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import backends, mutants, survivors
from harness.errors import HarnessFault
from harness.trial import Trial

ENTRY = '[[survivor]]\nmutant = "{}"\nrelease = "2.20.2"\nkind = "equivalent"\nreason = "it is."\n'
KILLED = Trial(mutant="a", outcome="killed", by=("outputs",), case=1)
ALIVE = Trial(mutant="a", outcome="survived")


def known(tmp_path: Path, *names: str) -> dict[str, survivors.Survivor]:
    file = tmp_path / "survivors.toml"
    file.write_text("".join(ENTRY.format(name) for name in names))
    return survivors.load("2.20.2", file)


def test_an_explained_survivor_and_a_killed_mutant_are_no_complaint(tmp_path: Path) -> None:
    trials = {"a": ALIVE, "b": KILLED}
    assert survivors.complaints(trials, known(tmp_path, "a"), ["a", "b"]) == []


@pytest.mark.parametrize(
    ("trial", "names", "complaint"),
    [
        (ALIVE, (), "a: survived, and not explained"),
        (Trial(mutant="a", outcome="unreached"), (), "a: unreached, and not explained"),
        (KILLED, ("a",), "a: explained as equivalent, and killed by outputs"),
        (KILLED, ("gone",), "gone: explained, and no mutant of this release"),
    ],
)
def test_what_is_wrong_with_the_reasons_is_said(
    trial: Trial, names: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    assert survivors.complaints({"a": trial}, known(tmp_path, *names), ["a"]) == [complaint]


def test_direct_execution_changes_where_that_is_the_reason_and_not_under_an_equivalent(
    tmp_path: Path,
) -> None:
    changed = Trial(mutant="a", outcome="survived", changes_direct=True)
    alike = {"a": survivors.Survivor("a", "2.20.2", "outside", "it changes both.", alike=True)}
    assert survivors.complaints({"a": changed}, alike, ["a"]) == []
    assert survivors.complaints({"a": ALIVE}, alike, ["a"]) == [
        "a: explained as changing both runs, and direct execution does not change"
    ]
    assert survivors.complaints({"a": changed}, known(tmp_path, "a"), ["a"]) == [
        "a: explained as equivalent, and direct execution changes"
    ]


def test_reasons_of_another_release_are_not_this_ones(tmp_path: Path) -> None:
    file = tmp_path / "survivors.toml"
    file.write_text(ENTRY.format("a"))
    assert survivors.load("2.19.0", file) == {}


def test_a_mutant_is_explained_once(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="a has two entries"):
        known(tmp_path, "a", "a")


def test_the_reasons_that_come_with_the_harness_are_of_mutants_of_their_release() -> None:
    release = backends.te_version()
    assert set(survivors.load(release)) <= set(mutants.mutants())
