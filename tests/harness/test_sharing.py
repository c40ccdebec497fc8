"""Campaigns share what they find: at once over one folder, and as shards over one Redis server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase, InMemoryExampleDatabase

from harness import again, backends, corpus
from harness import case as c
from harness.again import beside, concerning, judge_again
from harness.corpus import SavedCase, Seen
from harness.database import open_database
from harness.errors import CannotRunHere, HarnessFault
from harness.finds import Finds
from harness.outside import Ended, Outside
from harness.plan import Again, Plan
from harness.target import Target
from harness.trace import RunError
from harness.verdict import Verdict
from harness.violations import Violation
from tests.harness.commands import CASE, ROOT, fuzz, here, invoke
from tests.harness.redis_server import RedisServer, redis_server

REFUSES = ("--checkpointer", "tests.harness.planted:refuses")
PAIRING = Violation(oracle="pairing", message="popped another", iteration=0)
LARGER = c.Case(graph=c.Autocast(c.Chain((c.Region(c.Linear()), c.Linear()))), schedule=CASE.schedule)


def silent(_line: str) -> None:
    pytest.fail("nothing goes wrong here")


def folder_of(path: Path) -> Finds:
    return Finds(DirectoryBasedExampleDatabase(path), silent)


@pytest.fixture(scope="module")
def where() -> dict[str, str]:
    """What a case that is judged here says about where that was."""
    target = Target(backend=backends.active().name)
    return target.where(target.open())


# --- Judging again -----------------------------------------------------------------------------------


class Answers(Outside):
    """Has an answer for each case, and judges none."""

    def __init__(self, answers: dict[c.Case, Verdict | Ended | Exception], where: dict[str, str]) -> None:
        super().__init__(Target(), 1.0)
        self._answers = answers
        self.where = where

    def judge(self, case: c.Case) -> Verdict | Ended:
        answer = self._answers[case]
        if isinstance(answer, Exception):
            raise answer
        return answer


def numbered(number: int) -> c.Case:
    return msgspec.structs.replace(CASE, seed=number)


def verdict(*violations: Violation, error: RunError | None = None) -> Verdict:
    return Verdict(fingerprint="", violations=violations, direct_error=error)


def test_each_find_has_one_fate(monkeypatch: pytest.MonkeyPatch, where: dict[str, str]) -> None:
    answers: dict[c.Case, Verdict | Ended | Exception] = {
        numbered(1): verdict(PAIRING),
        numbered(2): Ended("SIGSEGV"),
        numbered(3): verdict(),
        numbered(4): verdict(error=RunError(0, "Forward", 0, "ValueError", "")),
        numbered(5): CannotRunHere("too old"),
        numbered(6): HarnessFault("planted"),
        numbered(7): verdict(PAIRING),
    }
    monkeypatch.setattr(again, "Outside", lambda _target, _timeout: Answers(answers, where))
    lines: list[str] = []
    shared = Finds(InMemoryExampleDatabase(), lines.append)
    for case in answers:
        origin = {**where, "transformer_engine": f"0.{case.seed}"}
        shared.add("contract", SavedCase(case=case, seen=Seen(violations=(PAIRING,)), where=origin))
    clock = iter([0.0, *[1.0] * 6, 61.0])
    fates = judge_again(
        shared, shared.of("contract"), Plan(seed=1, cases=1), lines.append, lambda: next(clock)
    )
    counts = (fates.failed, fates.removed, fates.held, fates.not_run, fates.not_judged)
    assert counts == (2, 1, 1, 1, 2)
    assert {kind: saved.case.seed for kind, saved in fates.failing.items()} == {
        "pairing": 1,
        "crash: SIGSEGV": 2,
    }
    assert numbered(3) not in [saved.case for saved in shared.of("contract")]
    assert len(shared.of("contract")) == 6
    assert lines == [f"database: {numbered(6).fingerprint}: planted"]


def test_only_finds_of_the_same_checkpointer_and_mode_concern_a_campaign() -> None:
    mine = [SavedCase(case=CASE, where={"te_mode": "corrected", "backend": "cuda"}), SavedCase(case=CASE)]
    others = [
        SavedCase(case=CASE, where={"checkpointer": "mine:own"}),
        SavedCase(case=CASE, where={"te_mode": "x"}),
    ]
    assert concerning([*mine, *others], Target()) == mine


def test_a_kind_of_which_a_campaign_has_a_smaller_case_is_not_told_again() -> None:
    small, large = (SavedCase(case=case, seen=Seen(violations=(PAIRING,))) for case in (CASE, LARGER))
    crash = SavedCase(case=CASE, seen=Seen(ending="SIGSEGV"))
    fates = Again(failing={"pairing": large, "crash: SIGSEGV": crash})
    assert beside(fates, [small, large]) == {"crash: SIGSEGV": crash}
    assert beside(fates, [large]) == {"crash: SIGSEGV": crash}
    assert beside(Again(failing={"pairing": small}), [large]) == {"pairing": small}


# --- One campaign ------------------------------------------------------------------------------------


def test_a_find_that_is_fixed_leaves_the_database_and_the_campaign_holds(
    tmp_path: Path, where: dict[str, str]
) -> None:
    shared = folder_of(tmp_path / "finds")
    shared.add("contract", SavedCase(case=CASE, seen=Seen(violations=(PAIRING,)), where=where))
    elsewhere = SavedCase(case=LARGER, seen=Seen(violations=(PAIRING,)), where={**where, "backend": "abacus"})
    shared.add("contract", elsewhere)
    report = tmp_path / "report.json"
    result = fuzz(tmp_path, "--database", tmp_path / "finds", "--json", report)
    assert result.exit_code == 0
    assert "te-harness: judging what the database has first (2)" in result.stderr
    assert result.stdout.splitlines()[-1].split(maxsplit=1) == [
        "database",
        "fixed and removed: 1, held and kept: 1",
    ]
    assert shared.of("contract") == [elsewhere]
    data = json.loads(report.read_text())
    assert (data["cases"], data["database"]["removed"], data["database"]["held"]) == (1, 1, 1)


def test_what_others_found_is_told_saved_and_counted_apart(tmp_path: Path, where: dict[str, str]) -> None:
    dies = "tests.harness.planted:dies_unless_reentrant"
    case = c.Case(graph=c.Autocast(c.Region(c.Linear(), use_reentrant=False)), schedule=CASE.schedule)
    crash = SavedCase(case=case, seen=Seen(ending="exit code 17"), where={**where, "checkpointer": dies})
    shared = folder_of(tmp_path / "finds")
    shared.add("contract", crash)
    # The one case of the campaign is reentrant, and holds.
    result = fuzz(tmp_path, "--database", tmp_path / "finds", "--checkpointer", dies)
    assert result.exit_code == 1
    assert ["violations", "none"] in [line.split() for line in result.stdout.splitlines()]
    assert ["database", "still fail: 1"] in [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert "crash: exit code 17 (from the database)" in result.stdout
    (path,) = (tmp_path / "corpus" / "crashes").iterdir()
    assert f"replay {path} " in result.stdout
    assert corpus.load(path).case == case
    assert shared.of("contract") == [crash]


def test_finds_are_listed_and_saved_as_files(tmp_path: Path) -> None:
    shared = folder_of(tmp_path / "finds")
    found = SavedCase(case=LARGER, why="fails: pairing", seen=Seen(violations=(PAIRING,)))
    crash = SavedCase(case=CASE, why="crash: SIGSEGV", seen=Seen(ending="SIGSEGV"))
    for saved in (found, crash):
        shared.add("contract", saved)
    result = invoke("finds", "--database", tmp_path / "finds", "--save", tmp_path / "saved")
    assert result.exit_code == 0
    heads = [line.split()[0] for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert heads == [LARGER.fingerprint, CASE.fingerprint]
    assert corpus.load(tmp_path / "saved" / f"{LARGER.fingerprint}.json") == found
    assert corpus.load(tmp_path / "saved" / "crashes" / f"{CASE.fingerprint}.json") == crash
    nothing = invoke("finds", "--database", tmp_path / "finds", "--domain", "frontier")
    assert (nothing.exit_code, nothing.stdout) == (0, "nothing is shared of the domain frontier\n")


def test_a_find_that_cannot_be_shared_is_still_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a full disk, of which Hypothesis says nothing.
    monkeypatch.setattr(DirectoryBasedExampleDatabase, "save", lambda *_arguments: None)
    result = fuzz(tmp_path, "--database", tmp_path / "finds", *REFUSES)
    assert result.exit_code == 1
    (path,) = (tmp_path / "corpus").iterdir()
    assert f"te-harness: database: {path.stem} could not be kept there." in result.stderr


# --- Several campaigns -------------------------------------------------------------------------------


def test_two_campaigns_at_once_over_one_corpus_and_one_folder_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "fuzz", "--cases", "2", "--seed", "5", "--workers", "1"]
    command += ["--backend", backends.active().name, "--corpus", str(tmp_path / "corpus"), *REFUSES]
    command += ["--database", str(tmp_path / "finds")]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)  # noqa: S603
        for _ in range(2)
    ]
    told = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [1, 1], told
    (path,) = (tmp_path / "corpus").iterdir()
    assert all(f"saved as {path}" in text for text in told)
    (shared,) = folder_of(tmp_path / "finds").of("contract")
    assert shared == corpus.load(path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


def test_a_shard_sees_what_another_has_found_on_another_machine(tmp_path: Path, server: RedisServer) -> None:
    def shard(name: str, machine: str) -> Path:
        options = ("--cases", 101, "--seconds", 1, "--seed", 5, "--workers", 1, "--shard", name)
        folder = tmp_path / machine
        files = ("--corpus", folder / "corpus", "--json", folder / "report.json")
        folder.mkdir()
        result = here("fuzz", *options, *files, "--database", server.url, *REFUSES)
        assert result.exit_code == 1, result.output
        return folder

    first, second = shard("2/2", "first"), shard("1/2", "second")
    found = {corpus.load(path).case for path in (first / "corpus").iterdir()}
    report = json.loads((second / "report.json").read_text())["database"]
    assert report["failed"] == len(found) == 1
    assert json.loads((first / "report.json").read_text())["database"]["failed"] == 0
    database = open_database(server.url, silent)
    there = {saved.case for saved in Finds(database, silent).of("contract")}
    assert there == found | {corpus.load(path).case for path in (second / "corpus").iterdir()}


def test_a_server_that_is_lost_on_the_way_costs_a_line(
    tmp_path: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TE_HARNESS_TEST_SERVER", str(server.pid))
    loses = ("--checkpointer", "tests.harness.planted:loses_the_server")
    result = fuzz(tmp_path, "--database", server.url, *loses)
    assert result.exit_code == 1
    (path,) = (tmp_path / "corpus").iterdir()
    assert f"saved as {path}" in result.stdout
    (seed, line) = [line for line in result.stderr.splitlines() if line.startswith("te-harness: ")]
    assert seed == "te-harness: seed 5"
    assert line.startswith(f"te-harness: {server.url}: ")
    assert line.endswith("; it is left out from now on.")


# --- pytest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "kept"), [("dev", True), ("ci", False)])
def test_hypothesis_keeps_examples_where_pytest_is_told_except_in_ci(
    tmp_path: Path, profile: str, kept: bool
) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["harness.pytest_plugin"]\n')
    (tmp_path / "test_one.py").write_text(
        "from hypothesis import given, strategies as st\n\n"
        "@given(st.integers())\ndef test_small(n: int) -> None:\n    assert n < 1000\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--hypothesis-profile={profile}"]
    command += ["--database", str(tmp_path / "examples"), "--backend", backends.active().name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stdout
    assert (tmp_path / "examples").exists() is kept
