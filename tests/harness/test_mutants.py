"""Mutants are found by reading sources, and their ids last."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from harness import mutants
from harness.errors import InvalidInput
from harness.named_mutants import NAMED
from harness.operators import OPERATORS

CHECKPOINT = "pytorch/distributed.py:checkpoint:"


def test_there_are_mutants_of_every_operator_and_of_every_file_that_serves_recomputation() -> None:
    found = mutants.mutants().values()
    ids = [mutant.id.split(":") for mutant in found if not mutant.id.startswith("named:")]
    assert {parts[2] for parts in ids} == set(OPERATORS)
    assert {parts[0] for parts in ids} == {*mutants.WHOLE_FUNCTIONS, *mutants.PLACES}


def test_every_mutant_differs_from_the_original_and_from_every_other() -> None:
    made: dict[tuple[str, str], set[str]] = {}
    for mutant in mutants.mutants().values():
        if mutant.file == "pytorch/distributed.py" and not mutant.id.startswith("named:"):
            known = made.setdefault((mutant.file, mutant.function), {ast.dump(mutant.original)})
            dumped = ast.dump(mutant.mutated)
            assert dumped not in known, mutant.id
            known.add(dumped)


def test_each_part_of_the_fix_has_a_mutant_that_reverts_it() -> None:
    assert [name for name in mutants.mutants() if name.startswith("named:")] == [
        f"named:{named.name}" for named in NAMED
    ]


def test_ids_survive_what_moves_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function itself stays; above it comes another, and comments come into it."""
    file = "pytorch/distributed.py"
    code = mutants.source(file).read_text()
    head = "@torch._disable_dynamo\ndef checkpoint("
    assert code.count(head) == 1
    moved = code.replace(head, f"def another(a, b):\n    return a and b\n\n\n{head}")
    moved = moved.replace("    # Pop out te.distributed", "    # And here\n    # Pop out te.distributed")
    assert moved.count("# And here") == 1
    (tmp_path / "pytorch").mkdir()
    (tmp_path / file).write_text(moved)

    expected = {m.id: (m.description, m.lines[0]) for m in mutants.matching((CHECKPOINT + "*",))}
    monkeypatch.setattr(mutants, "te_directory", lambda: tmp_path)
    mutants.mutants.cache_clear()
    mutants._functions.cache_clear()
    try:
        found = {m.id: (m.description, m.lines[0]) for m in mutants.matching((CHECKPOINT + "*",))}
    finally:
        mutants.mutants.cache_clear()
        mutants._functions.cache_clear()
    assert {name: description for name, (description, _) in found.items()} == {
        name: description for name, (description, _) in expected.items()
    }
    assert all(line > expected[name][1] for name, (_, line) in found.items())


def test_of_the_modules_only_the_places_that_ask_for_the_phase_are_mutated() -> None:
    found = [m for m in mutants.mutants().values() if m.file == "pytorch/module/layernorm_linear.py"]
    lines = mutants.source("pytorch/module/layernorm_linear.py").read_text().splitlines()
    assert found
    for mutant in found:
        first, last = mutant.lines
        around = "\n".join(lines[first - 2 : last])
        assert "in_fp8_activation_recompute_phase" in around, mutant.id


def test_a_pattern_finds_its_mutants_and_one_that_finds_none_is_an_error() -> None:
    assert {m.function for m in mutants.matching((CHECKPOINT + "*",))} == {"checkpoint"}
    assert len(mutants.matching(())) == len(mutants.mutants())
    with pytest.raises(InvalidInput, match=r"no mutant matches 'nothing:\*'"):
        mutants.matching(("nothing:*",))


def test_a_mistyped_id_is_told_the_nearest_one() -> None:
    with pytest.raises(InvalidInput, match="do you mean named:guard-reverted"):
        mutants.find("named:gard-reverted")


def test_a_diff_shows_the_one_line_that_differs() -> None:
    diff = mutants.find("named:guard-reverted").diff().splitlines()
    assert [line.strip("+- ") for line in diff[2:] if line.startswith(("+", "-"))] == [
        "if is_fp8_activation_recompute_enabled():",
        "if self.training and is_fp8_activation_recompute_enabled():",
    ]
