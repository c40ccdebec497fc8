"""A script of a case needs torch and Transformer Engine alone, and ends as the verdict has it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from harness import backends, corpus, record, reproducer
from harness import case as c
from harness.cli import main
from harness.errors import InvalidInput
from harness.session import Session
from harness.verdict import Verdict
from harness.violations import Violation
from strategies.frontier import frontier
from tests.harness.script_agreement import Ended, script

ROOT = Path(__file__).parents[2]
DRAWS = 30


def iterate(graph: c.Node, *steps: c.Step, **settings: object) -> c.Case:
    """Return a case with these steps, or with one iteration."""
    schedule = steps or (c.Forward(), c.Backward())
    return c.Case(graph=graph, schedule=schedule, **settings)  # type: ignore[arg-type]


LINEAR = c.Autocast(c.Region(c.Linear()))
RECOMPUTING = c.LayerNormMLP(recompute=True)
TWO = (c.Forward(), c.Forward(8.0))
AGAIN = (c.Forward(8.0), c.Backward(), c.Forward(8.0), c.Backward())

FAULTY = {
    "nested": iterate(c.Autocast(c.Region(c.Region(c.Linear())))),
    "abandoned": iterate(LINEAR, c.Forward(), c.Abandon(), c.Forward(8.0), c.Backward()),
    "out of order": iterate(LINEAR, *TWO, c.Backward(which=1), c.Backward()),
    "joint loss": iterate(LINEAR, *TWO, c.Backward(losses=2)),
    "recomputing in a region": iterate(
        c.Autocast(c.Region(c.Chain((c.Linear(), RECOMPUTING)), use_reentrant=False))
    ),
    "no input gradient": iterate(
        c.Autocast(c.Region(c.Linear(), use_reentrant=False)), input_requires_grad=False
    ),
    "autocast inside": iterate(c.Region(c.Autocast(c.Linear())), *AGAIN),
    "operation": iterate(c.Region(c.Autocast(c.OpsLinear()), use_reentrant=False)),
    "operation in an autocast": iterate(c.Autocast(c.Region(c.Autocast(c.OpsLinear())))),
    "tracked dropout": iterate(
        c.Autocast(c.Region(c.MultiheadAttention(dropout=0.1))), rng_tracker=True
    ),
    "inference first": iterate(LINEAR, c.Evaluate(mode="inference_mode"), c.Forward(), c.Backward()),
    "graph retained": iterate(
        c.Region(c.TorchLinear(), function="callable"), c.Forward(), c.Backward(retain=True), c.Backward()
    ),
    "extra state loaded": iterate(LINEAR, c.Forward(), c.LoadState(extra=True), c.Backward()),
    "evaluated amid": iterate(LINEAR, c.Forward(), c.Evaluate(100.0), c.Backward()),
    "changed in place": iterate(
        c.Autocast(c.Residual(c.Region(c.Linear(), use_reentrant=False), in_place=True))
    ),
    "given by keyword too": iterate(
        c.Autocast(c.Chain((c.Linear(), c.Region(c.Linear(), given="by keyword too"))))
    ),
    "gain by keyword": iterate(c.Region(c.TorchLinear(), gain=c.Gain(2.0, by_keyword=True))),
    "torch's checkpoint": iterate(c.Autocast(c.Region(c.Linear(), checkpointer="torch"))),
    "result dropped": iterate(c.Autocast(c.Discard(c.Region(c.Linear())))),
    "raising": iterate(LINEAR, c.Forward(fails=0), c.Forward(8.0), c.Backward()),
    "used in two regions": iterate(c.Chain((LINEAR, c.Autocast(c.Region(c.Reuse(0)))))),
    "copied beside": iterate(
        c.Autocast(c.Chain((c.Region(c.Linear()), c.Region(c.Twin(0))))),
        c.Forward(), c.Backward(), c.DeepCopy(beside=True), *2 * (c.Forward(8.0), c.Backward())
    ),
    "used without FP8": iterate(c.Chain((LINEAR, c.Autocast(c.Reuse(0), enabled=False)))),
    "recipe changed": iterate(
        LINEAR, TWO[0], c.SetRecipe(c.CurrentScaling()), TWO[1], c.Backward(), c.Backward()
    ),
    "nothing saved": iterate(
        c.Autocast(c.Region(c.Residual(c.GradMode(c.Linear(), "no_grad")), use_reentrant=False))
    ),
}  # fmt: skip
"""The least that shows each fault, on every backend."""

_TWO_REGIONS = c.Autocast(c.Chain((c.Region(c.Linear()), c.Region(c.Linear()))))
RAISING = {
    "raising in a backward": iterate(_TWO_REGIONS, c.Forward(), c.Backward(fails=1)),
    "raising in a backward, then going on": iterate(
        _TWO_REGIONS, c.Forward(), c.Backward(fails=1), c.Forward(8.0), c.Backward()
    ),
    "random numbers after it": iterate(
        c.Chain((LINEAR, c.TorchDropout())), *TWO, c.Backward(fails=0), c.Backward()
    ),
    "the CPU's random numbers after it": iterate(
        c.Chain((c.Region(c.TorchLinear()), c.TorchDropout(on_cpu=True))), c.Forward(), c.Backward(fails=0)
    ),
}  # fmt: skip
"""Faults that show once a recompute has raised; their scripts may be longer."""

SOUND = {
    "copied in time": iterate(c.Autocast(c.Chain((c.Region(c.Linear()), c.Region(c.Twin(0))))), *AGAIN),
    "copied in a region that is a function": iterate(
        c.Autocast(c.Chain((c.Linear(), c.Region(c.Twin(0), gain=c.Gain(2.0))))), *AGAIN
    ),
    "copied, and extra state loaded": iterate(
        c.Autocast(c.Chain((c.Linear(), c.Twin(0)))), c.Forward(), c.LoadState(extra=True), c.Backward()
    ),
    "copied, and all copied again": iterate(
        c.Autocast(c.Chain((c.Linear(), c.Region(c.Twin(0))))), *AGAIN, c.DeepCopy(), *AGAIN
    ),
    "a copy of a grouped one": iterate(
        c.Autocast(c.Chain((c.MultiheadAttention(), c.GroupedLinear(), c.Region(c.Twin(1))))), *AGAIN
    ),
    "recomputing under torch autocast": iterate(c.Autocast(RECOMPUTING), *AGAIN, torch_autocast=True),
    "plain": iterate(LINEAR),
    "repeated": iterate(LINEAR, *AGAIN),
    "in order": iterate(LINEAR, *TWO, c.Backward(), c.Backward()),
    "dropped in time": iterate(c.Autocast(c.Chain((c.Region(c.Linear()), c.Discard(c.Linear()))))),
    "autocast outside": iterate(c.Autocast(c.Region(c.Autocast(c.Linear()))), *AGAIN),
    "untracked dropout": iterate(c.Autocast(c.Region(c.MultiheadAttention(dropout=0.1)))),
    "evaluated before": iterate(LINEAR, c.Evaluate(100.0), c.Forward(), c.Backward()),
    "gain by position": iterate(c.Region(c.TorchLinear(), gain=c.Gain(2.0))),
    "wrapped": iterate(c.Autocast(c.Region(c.Linear(), checkpointer="wrapper"))),
    "saved and loaded": iterate(
        LINEAR, c.SaveState(), *AGAIN, c.LoadState(), c.DeepCopy(), c.Forward(), c.Backward()
    ),
    "both raise": iterate(c.Autocast(c.Region(c.GradMode(c.Linear(), "no_grad")))),
}  # fmt: skip
"""Neighbours of those, which hold."""

CASES = {**FAULTY, **RAISING, **SOUND}


class Tried(NamedTuple):
    verdict: Verdict
    text: str
    ended: Ended


@pytest.fixture(scope="module")
def tried(te_session: Session, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tried]:
    """Return verdict, script and end of each case; the scripts run in a process of their own."""
    folder = tmp_path_factory.mktemp("scripts")
    drawn = {f"draw {number}": case for number, case in enumerate(record.draw(frontier(), DRAWS, seed=1))}
    made = {}
    for name, case in {**CASES, **drawn}.items():
        verdict = te_session.judge(case)
        made[name] = verdict, script(case, verdict)
        (folder / f"{name}.py").write_text(made[name][1])
    command = [sys.executable, "-m", "tests.harness.script_agreement", str(folder)]
    ran = subprocess.run(  # noqa: S603
        [*command, "--backend", backends.active().name], capture_output=True, text=True, cwd=ROOT, check=True
    )
    ended = {name: Ended(*end) for name, end in json.loads(ran.stdout).items()}
    return {name: Tried(verdict, text, ended[name]) for name, (verdict, text) in made.items()}


@pytest.mark.parametrize("name", [*FAULTY, *RAISING])
def test_the_script_of_a_fault_shows_it(tried: dict[str, Tried], name: str) -> None:
    verdict, _, ended = tried[name]
    assert not verdict.held
    assert ended.code == 1, ended.output
    assert "expected" in ended.output
    assert "observed" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("name", SOUND)
def test_the_script_of_a_sound_case_ends_with_0(tried: dict[str, Tried], name: str) -> None:
    assert tried[name].verdict.held
    assert tried[name].ended.code == 0, tried[name].ended.output


@pytest.mark.parametrize("number", range(DRAWS))
def test_the_script_of_any_case_ends_as_the_verdict_has_it(tried: dict[str, Tried], number: int) -> None:
    verdict, text, ended = tried[f"draw {number}"]
    assert ended.code == (not verdict.held), f"{verdict.signature}\n{ended.output}\n{text}"


@pytest.mark.parametrize("name", FAULTY)
def test_a_script_is_short(tried: dict[str, Tried], name: str) -> None:
    lines = tried[name].text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("name", CASES)
def test_a_script_needs_torch_and_te_alone(tried: dict[str, Tried], name: str) -> None:
    tree = ast.parse(tried[name].text)
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    theirs = {module.split(".")[0] for module in imported} - sys.stdlib_module_names
    assert theirs == {"torch", "transformer_engine"}


@pytest.mark.parametrize("name", CASES)
def test_a_script_defines_and_imports_only_what_it_uses(tried: dict[str, Tried], name: str) -> None:
    tree = ast.parse(tried[name].text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    defined |= {(a.asname or a.name).split(".")[0] for node in imports for a in node.names}
    assert defined - {"forward", "apply"} <= used


def test_what_only_the_harness_sees_has_no_script() -> None:
    violation = Violation(oracle="pairing", message="popped snapshot [1], expected its own [0]", iteration=0)
    with pytest.raises(InvalidInput, match="pairing"):
        reproducer.script(CASES["plain"], corpus.Seen(violations=(violation,)))


# --- The command ---


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["reproduce", *map(str, arguments)])


@pytest.fixture
def saved(te_session: Session, tmp_path: Path) -> Path:
    """Return a saved case, with what was seen of it."""
    case = FAULTY["abandoned"]
    verdict = te_session.judge(case)
    seen = corpus.Seen(violations=verdict.violations)
    return corpus.save(tmp_path, corpus.SavedCase(case=case, seen=seen))


def test_the_command_prints_the_script(saved: Path, tried: dict[str, Tried]) -> None:
    result = invoke(saved)
    assert result.exit_code == 0
    assert result.stdout == tried["abandoned"].text


def test_the_command_writes_a_new_file_and_over_none(saved: Path, tmp_path: Path) -> None:
    output = tmp_path / "script.py"
    assert invoke(saved, "--output", output).exit_code == 0
    written = output.read_text()
    assert written == invoke(saved).stdout
    result = invoke(saved, "--output", output)
    assert result.exit_code == 2
    assert output.read_text() == written


def test_a_case_without_anything_seen_is_judged_first(tmp_path: Path, tried: dict[str, Tried]) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(c.encode(FAULTY["abandoned"]))
    result = invoke(path, "--backend", backends.active().name)
    assert result.exit_code == 0
    assert result.stdout == tried["abandoned"].text


def test_a_strangers_path_does_not_get_into_a_script() -> None:
    case = iterate(LINEAR)
    for path in (
        "body.body is print('!') or a.scaling_fwd.scale",
        "body.body.__class__.scaling_fwd.scale",
        "body.body.fp8_meta;print('!');a.scaling_fwd.scale",
    ):
        seen = corpus.Seen(violations=(Violation(oracle="FP8 state", iteration=0, message="x", module=path),))
        with pytest.raises(InvalidInput, match="shows only to the harness"):
            reproducer.script(case, seen)
