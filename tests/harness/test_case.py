"""Cases as data: their JSON, their names, and the walks over their graphs."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from harness import case as c

GRAPH = c.Autocast(
    c.Chain(
        (
            c.Region(c.Residual(c.Linear())),
            c.Sum((c.LayerNormMLP(training=False), c.GradMode(c.RMSNorm(), "no_grad"))),
            c.Region(c.TorchGELU(), use_reentrant=False),
        )
    )
)
CASE = c.Case(graph=GRAPH, schedule=(c.Forward(), c.SetMode(1, training=True), c.Backward(10.0)))


def test_json_holds_what_is_not_a_default_and_always_the_schema() -> None:
    plain = json.loads(c.encode(CASE))
    assert plain["graph"]["type"] == "Autocast"
    assert plain["schedule"][1] == {"type": "SetMode", "module": 1, "training": True}
    assert plain["schema"] == c.SCHEMA
    assert set(plain) == {"graph", "schedule", "schema"}


def test_json_does_not_depend_on_how_a_case_was_made() -> None:
    spelled_out = c.Case(
        graph=c.Autocast(c.Region(c.Linear(training=True, bias=True), gain=None), enabled=True),
        schedule=(c.Forward(float("1.0")), c.Backward(float("1.0"))),
        recipe=c.DelayedScaling(history=4),
    )
    short = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))

    assert c.encode(spelled_out) == c.encode(short)
    assert msgspec.json.decode(c.encode(short), type=c.Case) == spelled_out


def test_the_name_of_a_saved_case_never_changes() -> None:
    """A new name would orphan every file that people keep: give a new field a default instead."""
    assert CASE.fingerprint == "d1a85ea4507756c2"


def test_json_makes_the_same_case_again() -> None:
    again = msgspec.json.decode(c.encode(CASE), type=c.Case)
    assert again == CASE
    assert again.fingerprint == CASE.fingerprint


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "import sys, msgspec; from harness.case import Case;"
        "print(msgspec.json.decode(sys.argv[1], type=Case).fingerprint)"
    )
    command = [sys.executable, "-c", program, c.encode(CASE).decode()]
    other = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603
    assert other.stdout.strip() == CASE.fingerprint
    assert len(CASE.fingerprint) == 16


@pytest.mark.parametrize(
    "field", [{"seed": 1}, {"rows": 32}, {"recipe": c.HighPrecision()}, {"schedule": ()}]
)
def test_every_difference_changes_the_fingerprint(field: dict[str, object]) -> None:
    assert msgspec.structs.replace(CASE, **field).fingerprint != CASE.fingerprint


def test_a_case_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        CASE.seed = 1  # type: ignore[misc]


def test_modules_and_regions_are_numbered_in_the_order_in_which_they_run() -> None:
    kinds = [type(leaf) for leaf in c.modules(CASE)]
    assert kinds == [c.Linear, c.LayerNormMLP, c.RMSNorm, c.TorchGELU]
    assert [region.use_reentrant for region in c.regions(CASE)] == [True, False]


def test_a_walk_meets_parents_before_children() -> None:
    found = c.walk(GRAPH)
    assert found[0] is GRAPH
    for place, node in enumerate(found):
        assert all(any(child is later for later in found[place:]) for child in c.children(node))


def test_a_leaf_has_no_children() -> None:
    assert c.children(c.Linear()) == ()
    assert c.children(c.Chain(())) == ()
