"""Every command ends with the exit code that fits, and says in one line what is wrong with its input."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from harness import backends, doctor, workers
from harness import case as c
from harness.cli import main
from harness.errors import ReleaseLacks
from harness.session import Session
from tests.harness.commands import CASE, PLANTED, ROOT, complaint, fuzz, here, invoke, run, save_case

# --- Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fuzz", "--domain", "moon"], "no domain 'moon': choose one of contract"),
        (["fuzz", "--cases", "0"], "0 is not in the range x>=1"),
        (["fuzz", "--cases", "many"], "'many' is not a valid integer"),
        (["fuzz", "--workers", "0"], "neither auto nor a number from 1 on"),
        (["fuzz", "--workers", "all"], "neither auto nor a number from 1 on"),
        (["fuzz", "--shard", "2"], "'2' is not of the form I/N"),
        (["fuzz", "--shard", "0/2"], "is not one from 1/N to N/N"),
        (["fuzz", "--shard", "3/2"], "is not one from 1/N to N/N"),
        (["fuzz", "--shard", "2/2", "--cases", "5"], "of 5 cases none is left for it"),
        (["fuzz", "--case-timeout", "0"], "0.0 is not in the range x>0"),
        (["fuzz", "--seconds", "0"], "0.0 is not in the range x>0"),
        (["fuzz", "--seconds", "nan"], "nan is not a number of seconds"),
        (["fuzz", "--seed", "-1"], "-1 is not in the range"),
        (["fuzz", "--backend", "abacus"], "'abacus' is not one of 'auto', 'cpu', 'cuda'"),
        (["fuzz", "--te", "broken"], "'broken' is not one of corrected, installed and mutant:ID"),
        (["fuzz", "--checkpointer", "nothing"], "takes module:function, not 'nothing'"),
        (["fuzz", "--json", "{taken}"], "exists already and is not overwritten"),
        (["fuzz", "--json", "{folder}/no/report.json"], "there is no folder"),
        (["fuzz", "--corpus", "{taken}"], "is not a folder"),
        (["fuzz", "--corpus", "{taken}/corpus"], "is not a folder"),
        (["replay"], "Missing argument"),
        (["replay", "{folder}/missing.json"], "there is no such file"),
        (["replay", "{folder}/empty"], "there are no saved cases"),
        (["replay", "{taken}"], "not a usable saved case"),
        (["record", "{folder}/new"], "give either --cases"),
        (["record", "{folder}/new", "--cases", "1", "--from", "{taken}"], "give either --cases"),
        (["record", "{taken}", "--cases", "1"], "exists already and is not overwritten"),
        (["record", "{folder}/new", "--cases", "1", "--domain", "moon"], "no domain 'moon'"),
        (["record", "{folder}/new", "--from", "{taken}"], "not a usable saved case"),
        (["record", "{folder}/new", "--from", "{folder}/empty"], "there are no saved cases"),
        (["record", "{folder}/new", "--from", "{folder}/missing"], "there is no such file"),
        (["compare", "{taken}", "{taken}"], "is not of a record"),
        (["doctor", "--backend", "abacus"], "'abacus' is not one of"),
        ([], "Missing command"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    taken = tmp_path / "taken"
    taken.write_text("mine")
    result = invoke(*(argument.format(folder=tmp_path, taken=taken) for argument in arguments))
    assert words in complaint(result)
    assert result.exit_code == 2
    assert taken.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "taken"]


def test_a_checkpointer_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    result = fuzz(tmp_path, "--checkpointer", "nowhere:checkpoint")
    assert "No module named 'nowhere'" in result.stderr
    assert result.exit_code == 2


def test_what_cannot_run_here_ends_with_125(tmp_path: Path) -> None:
    package = tmp_path / "transformer_engine"
    package.mkdir()
    (package / "__init__.py").touch()
    metadata = tmp_path / "transformer_engine-2.0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transformer_engine\nVersion: 2.0.1\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = run("replay", str(save_case(tmp_path)), PYTHONPATH=path)
    assert result.returncode == 125
    assert result.stderr.startswith("te-harness: Transformer Engine 2.0.1 is too old")
    assert len(result.stderr.splitlines()) == 1


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_session: Session, _case: c.Case) -> None:
        raise ReleaseLacks("2.1.0", "the module Linear")

    monkeypatch.setattr(Session, "judge", refuse)
    run_campaign = workers.run
    # In this process, where that session is.
    monkeypatch.setattr(workers, "run", lambda plan, show: run_campaign(replace(plan, workers=0), show))


@pytest.mark.usefixtures("nothing_runs")
def test_a_saved_case_that_this_release_cannot_run_ends_with_125(tmp_path: Path) -> None:
    result = here("replay", save_case(tmp_path))
    told = "Transformer Engine 2.1.0 lacks the module Linear: use a newer release."
    assert complaint(result) == f"te-harness: cannot run here: {CASE.fingerprint}: {told}"
    assert result.stdout == ""
    assert result.exit_code == 125


@pytest.mark.usefixtures("nothing_runs")
def test_a_campaign_of_which_nothing_can_run_ends_with_125(tmp_path: Path) -> None:
    result = fuzz(tmp_path, cases=3)
    assert "not run     3 more cases; lacking here: the module Linear 3" in result.stdout
    assert "can run none of the cases drawn" in result.stderr
    assert result.exit_code == 125


def test_a_record_tells_what_could_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = here("record", tmp_path / "mine", "--cases", 2, "--seed", 1)
    assert "2 cases, 0 of them violated\n" in made.stdout

    def refuse(_session: Session, _case: c.Case) -> None:
        raise ReleaseLacks("2.1.0", "the module Linear")

    monkeypatch.setattr(Session, "judge", refuse)
    made = here("record", tmp_path / "other", "--from", tmp_path / "mine")
    assert "2 cases, 0 of them violated, 2 not run for what this release lacks" in made.stdout
    compared = invoke("compare", tmp_path / "mine", tmp_path / "other")
    assert compared.stdout.count("verdict: held and not run for lack of the module Linear") == 2
    assert compared.exit_code == 1


def test_cuda_without_a_gpu_ends_with_125() -> None:
    result = run("fuzz", "--backend", "cuda", "--cases", "1", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 125
    assert "the cuda backend cannot run here: no GPU is visible to torch" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_backends_are_those_that_there_are() -> None:
    (option,) = (option for option in main.commands["fuzz"].params if option.name == "backend")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == backends.CHOICES


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from harness.cli import main;"
        "assert CliRunner().invoke(main, ['fuzz', '--help']).exit_code == 0;"
        "assert not {'torch', 'hypothesis', 'rich', 'transformer_engine'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)  # noqa: S603


# --- The other commands ------------------------------------------------------------------------------


def test_the_doctor_says_what_runs_here() -> None:
    result = here("doctor")
    assert result.exit_code == 0
    assert backends.te_version() in result.stdout
    assert "runs here" in result.stdout.splitlines()[-1]


def test_the_doctor_ends_with_125_where_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    sick = doctor.Diagnosis((("python", "3"),), "cannot run here: no GPU", healthy=False)
    monkeypatch.setattr(doctor, "examine", lambda _backend: sick)
    result = invoke("doctor")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (125, sick.verdict)


def test_an_unexpected_error_ends_with_3_and_is_seen_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_backend: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "examine", fail)
    result = invoke("doctor")
    assert result.exit_code == 3
    assert result.stderr.startswith("Traceback")


def test_records_of_the_same_cases_agree_or_do_not(tmp_path: Path) -> None:
    first, same, other = (tmp_path / name for name in ("first", "same", "other"))
    assert here("record", first, "--cases", 4, "--seed", 1).exit_code == 0
    assert here("record", same, "--from", first).exit_code == 0
    assert here("record", other, "--from", first, *PLANTED).exit_code == 0
    agreeing = invoke("compare", first, same)
    assert (agreeing.exit_code, agreeing.stdout) == (0, "4 of 4 cases agree\n")
    differing = invoke("compare", first, other)
    assert differing.exit_code == 1
    assert "verdict: held and violated (" in differing.stdout


def test_records_of_different_cases_are_not_compared(tmp_path: Path) -> None:
    for seed in (1, 2):
        here("record", tmp_path / str(seed), "--cases", 4, "--seed", seed)
    result = invoke("compare", tmp_path / "1", tmp_path / "2")
    assert "different cases" in complaint(result)
    assert result.exit_code == 2


def test_a_reader_that_leaves_is_no_violation() -> None:
    command = f"{shlex.quote(sys.executable)} -m harness mutants | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(  # noqa: S602 - a shell is what makes the pipe
        command, shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (141, "")
    assert done.stdout.startswith("named:guard-reverted")


def test_a_user_without_a_home_is_told_what_to_set_where_something_must_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless(_cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(homeless))
    assert invoke("mutants", "named:guard-reverted").exit_code == 0
    result = invoke("mutants", "--release", "2.17.0")
    assert "set XDG_CACHE_HOME" in complaint(result)
    assert result.exit_code == 125


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("> /dev/full", 125, id="full disk"),
        pytest.param("| true; exit ${PIPESTATUS[0]}", 141, id="closed pipe"),
    ],
)
def test_output_that_cannot_be_written_ends_in_a_line_and_loses_no_report(
    tmp_path: Path, ending: str, code: int
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    report = tmp_path / "report.json"
    command = f"{shlex.quote(sys.executable)} -m harness fuzz --backend cpu --cases 2 --workers 1 --seed 1"
    done = subprocess.run(  # noqa: S602 - a shell is what makes the pipe
        f"{command} --json {shlex.quote(str(report))} {ending}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert report.exists()
