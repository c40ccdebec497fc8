"""The laws of the design: who may import whom, and who may know what."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("harness/**/*.py"), *ROOT.glob("strategies/**/*.py")])

LAYERS = [
    {"errors", "plain_data", "recipe", "nodes", "steps", "case", "te_mode", "violations"},
    {
        "validity",
        "graph_traits",
        "schedule_traits",
        "use_traits",
        "beyond",
        "known_issues",
        "features",
        "sentence",
        "strategies",
    },
    {"backends", "gpus", "leases"},
    {"operators", "named_mutants", "mutants"},
    {
        "trace",
        "verdict",
        "api",
        "probe",
        "grad_modes",
        "leaves",
        "containers",
        "region",
        "build",
        "support",
        "correction",
        "mutation",
    },
    {"inputs", "comparison", "recorder", "caller", "gradients", "execute", "oracles"},
    {"session"},
    {
        "events",
        "failure",
        "files",
        "journal",
        "releases",
        "campaign",
        "corpus",
        "crew",
        "database",
        "grid",
        "inflight",
        "messages",
        "outside",
        "pairing",
        "plan",
        "record",
        "reducer",
        "story",
        "tally",
        "target",
        "timeline",
    },
    {"again", "crashes", "finds", "minimize", "replay", "watchdog"},
    {"logbook"},
    {"script_text"},
    {"script_imports", "script_modules", "script_schedule"},
    {"script_graph", "script_model"},
    {"script_regions", "script_results"},
    {"script_steps", "script_checks"},
    {"reproducer"},
    {"worker"},
    {"workers", "survey", "campaign_events"},
    {"bisect", "museum", "rediscovery"},
    {"reach", "trial", "trial_messages", "court", "sensitivity", "survivors"},
    {"document", "document_html", "document_markdown", "run_summary"},
    {"doctor", "report", "sensitivity_report", "options", "exits"},
    {
        "known_issues_report",
        "run_report",
        "museum_report",
        "timeline_html",
        "timeline_signs",
        "timeline_svg",
        "timeline_terminal",
    },
    {
        "bisect_command",
        "explain_command",
        "finds_command",
        "fuzz_command",
        "known_issues_commands",
        "minimize_command",
        "museum_commands",
        "mutant_commands",
        "replay_command",
        "report_command",
        "reproduce_command",
        "cli",
        "pytest_crashes",
        "pytest_events",
        "pytest_gpus",
        "pytest_options",
        "pytest_plugin",
        "pytest_properties",
        "pytest_replay",
        "__main__",
    },
]
"""Lowest first. A module imports from its own layer and from those below."""

ORACLES_MAY_IMPORT = {"__future__", "collections", "harness", "itertools", "msgspec", "typing"}
TE_PUBLIC = {"transformer_engine.pytorch", "transformer_engine.common.recipe"}
"""What the others import of TE; ``ast`` shows the names as they are imported."""
TE_PRIVATE_NAMES = ("fp8_meta", "quantization_state", "FP8GlobalStateManager", "te.distributed", "tex.")
MAY_KNOW_TE_PRIVATELY = {
    "probe",
    "correction",
    "mutation",
    "mutants",
    "named_mutants",
    "script_checks",
    "script_imports",
    "script_model",
}
"""The last three hold lines of scripts, which are for readers who do."""


def noun(path: Path) -> str:
    """The module's place in LAYERS: packages count as one."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "strategies":
        return "strategies"
    return parts[1] if parts[1] != "__init__" else "errors"


def imports(path: Path) -> list[str]:
    """Every module that a file imports anywhere, also inside functions."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _without_docstrings(code: str) -> str:
    """Words about TE's private state are free; only code is bound."""
    return re.sub(r'"""[\s\S]*?"""', "", code)


def layer(name: str) -> int:
    for number, names in enumerate(LAYERS):
        if name in names:
            return number
    pytest.fail(f"{name} has no place in LAYERS: give it one")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = layer(noun(path))
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "strategies" or (parts[0] == "harness" and len(parts) > 1):
            target = "strategies" if parts[0] == "strategies" else parts[1]
            if target in {other for names in LAYERS for other in names}:
                assert layer(target) <= own, f"{noun(path)} imports {name} from a layer above"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_probe_and_the_patches_know_te_privately(path: Path) -> None:
    if noun(path) in MAY_KNOW_TE_PRIVATELY | {"backends"}:
        return
    for name in imports(path):
        if name.startswith("transformer_engine"):
            assert name in TE_PUBLIC, f"{path.name} imports {name}"
    code = ast.unparse(ast.parse(path.read_text()))
    for private in TE_PRIVATE_NAMES:
        assert private not in _without_docstrings(code), f"{path.name} knows {private}"


def test_the_architecture_draws_these_layers() -> None:
    """In the same order, highest first; at the right of the names, what a layer is for."""
    drawing = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
    drawn = [word for line in drawing.splitlines() for word in line[:72].split()]
    assert drawn == [name for names in reversed(LAYERS) for name in sorted(names)]


def test_strategies_import_neither_torch_nor_te() -> None:
    for path in ROOT.glob("strategies/*.py"):
        for name in imports(path):
            assert name.split(".")[0] not in {"torch", "transformer_engine"}, path.name
            assert not name.startswith("harness.") or name.split(".")[1] in LAYERS[0] | LAYERS[1], name


def test_scripts_are_text_that_is_made_without_torch_and_te() -> None:
    for path in [ROOT / "harness/reproducer.py", *ROOT.glob("harness/script_*.py")]:
        for name in imports(path):
            assert name.split(".")[0] not in {"torch", "transformer_engine"}, path.name


def test_oracles_only_compare() -> None:
    for name in imports(ROOT / "harness/oracles.py"):
        root, *rest = name.split(".")
        assert root in ORACLES_MAY_IMPORT
        assert root != "harness" or rest[0] in {"case", "comparison", "graph_traits", "trace", "violations"}


def test_no_file_but_the_backends_asks_which_backend_is_active() -> None:
    for path in FILES:
        if noun(path) == "backends":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                text = ast.unparse(node)
                assert "backend.name" not in text, f"{path.name}: {text}"


def test_case_and_violations_are_plain_data() -> None:
    allowed = set(sys.stdlib_module_names) | {"msgspec"}
    data = ("plain_data", "recipe", "nodes", "steps", "case", "violations")
    for file in data:
        for name in imports(ROOT / f"harness/{file}.py"):
            root, *rest = name.split(".")
            assert root in allowed or rest[0] in data
