"""What is refused, and that each refusal is one line that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import case as c
from harness import validity
from harness.errors import InvalidInput

ONCE: tuple[c.Step, ...] = (c.Forward(), c.Backward())
PLAIN = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=ONCE)


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        validity.decode(data)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


def changed(**fields: Any) -> bytes:
    """Return the JSON of the plain case with some of its fields replaced."""
    return json.dumps({**json.loads(c.encode(PLAIN)), **fields}).encode()


def nested(levels: int) -> bytes:
    body = '{"type":"Residual","body":' * levels + '{"type":"Linear"}' + "}" * levels
    return f'{{"schema":1,"schedule":[{{"type":"Evaluate"}}],"graph":{body}}}'.encode()


def test_a_plain_case_is_accepted() -> None:
    assert validity.decode(c.encode(PLAIN)) == PLAIN


def test_what_has_a_default_may_be_left_out() -> None:
    data = b'{"schema":1,"graph":{"type":"Linear"},"schedule":[{"type":"Evaluate"}]}'
    assert validity.decode(data) == c.Case(graph=c.Linear(), schedule=(c.Evaluate(),))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `schema`"),
        (b'{"schema":"1"}', "Expected `int`, got `str` - at `$.schema`"),
        (b'{"schema":' + b"9" * 60_000 + b"}", "out of range"),
        (b'{"schema":1,"x":' + b"[" * 60_000, "nested too deeply"),
        (b" " * (c.MAX_BYTES + 1), "at most 65536 bytes, got 65537"),
        (changed(schema=7, novelty=True), "knows case schema 1, got 7"),
        (changed(sead=1), "unknown field `sead`"),
        (changed(**{"a\nb\x1b[2J": 1}), "unknown field `a?b?[2J`"),
        (changed(**{"a" * 10_000: 1}), "..."),
        (changed(seed=1.5), "at `$.seed`"),
        (changed(rows=17), "at `$.rows`"),
        (changed(graph={"type": "Bomb"}), "Invalid value 'Bomb' - at `$.graph.type`"),
        (changed(graph={"type": "Linear", "training": "yes"}), "at `$.graph.training`"),
        (changed(schedule=[{"type": "Forward", "magnitude": None}]), "at `$.schedule[0].magnitude`"),
    ],
)
def test_bytes_that_are_no_case_are_refused(data: bytes, words: str) -> None:
    assert words in refusal(data)


@pytest.mark.parametrize("levels", [40, 200, 900, 1500, 2300])
def test_deep_nesting_is_refused_and_never_crashes(levels: int) -> None:
    assert "levels" in refusal(nested(levels))


def test_a_graph_may_have_thirty_two_levels() -> None:
    assert validity.decode(nested(31))


def test_a_wide_graph_is_refused() -> None:
    assert "at most 64 nodes" in refusal(changed(graph={"type": "Chain", "nodes": [{"type": "Linear"}] * 64}))


def case(graph: c.Node = PLAIN.graph, schedule: tuple[c.Step, ...] = ONCE, **fields: Any) -> c.Case:
    return msgspec.structs.replace(PLAIN, graph=graph, schedule=schedule, **fields)


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        (case(c.Region(c.Chain(()))), "no module"),
        (case(c.Chain((c.Linear(), c.Sum(())))), "node 2 of the graph (Sum): a sum needs"),
        (case(c.TorchDropout(p=1.0)), "dropout probability"),
        (case(c.MultiheadAttention(dropout=float("nan"))), "dropout probability"),
        (case(c.TransformerLayer(dropout=-0.1)), "dropout probability"),
        (case(c.GroupedLinear(groups=2)), "2 groups need rows to be 32, got 16"),
        (case(c.Region(c.Linear(), gain=c.Gain(0.0))), "a gain is finite and not zero"),
        (case(c.Region(c.Linear(), gain=c.Gain(float("inf")))), "a gain is finite"),
        (
            case(c.Chain((c.Twin(0), c.Linear()))),
            "node 1 of the graph (Twin): there is no module 0 before it",
        ),
        (case(c.Chain((c.Linear(), c.Twin(0), c.Twin(0)))), "(Twin): module 0 has a twin before it"),
        (case(schedule=(c.Forward(), c.DeepCopy(), c.Backward())), "$.schedule[1]: a forward is pending"),
        (case(schedule=(c.Forward(), c.DeepCopy(beside=True), c.Backward())), "a forward is pending"),
        (case(schedule=()), "nothing would run"),
        (case(schedule=(c.OptimizerStep(),)), "nothing would run"),
        (case(schedule=(c.Backward(),)), "$.schedule[0]: a backward without a forward"),
        (case(schedule=(c.Forward(), c.Forward(), c.Backward())), "$.schedule[1]: no backward follows"),
        (case(schedule=(c.Abandon(),)), "$.schedule[0]: an abandonment without a forward"),
        (
            case(schedule=(c.Forward(), c.Backward(which=1))),
            "$.schedule[1]: there is no pending forward 1, but 1 of them",
        ),
        (case(schedule=(*ONCE, c.Backward())), "$.schedule[2]: a backward without a forward"),
        (case(schedule=(*ONCE, c.Forward())), "$.schedule[2]: no backward follows"),
        (case(schedule=(c.SetMode(1, training=True), *ONCE)), "$.schedule[0]: there is no module 1"),
        (case(schedule=(c.SetMode(-1, training=True), *ONCE)), "there is no module -1"),
        (case(schedule=ONCE * 33), "at most 64 steps, got 66"),
        (case(schedule=(c.Evaluate(1e31),)), "$.schedule[0]: a magnitude is 0, or between"),
        (case(schedule=(c.Evaluate(1e-31),)), "a magnitude"),
        (case(schedule=(c.Evaluate(-1.0),)), "a magnitude"),
        (case(schedule=(c.Evaluate(float("nan")),)), "a magnitude"),
        (case(recipe=c.DelayedScaling(history=0)), "$.recipe.history: between 1 and 1024, got 0"),
        (case(recipe=c.DelayedScaling(history=1025)), "$.recipe.history"),
        (case(recipe=c.DelayedScaling(margin=-9)), "$.recipe.margin: between -8 and 8, got -9"),
        (case(recipe=c.HighPrecision(), quantized_parameters=True), "$.quantized_parameters"),
        (case(seed=-1), "$.seed"),
        (case(seed=2**32), "$.seed"),
        (case(schema=2), "knows case schema 1, got 2"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(nonsense: c.Case, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        validity.check(nonsense)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "sensible",
    [
        case(c.Linear()),
        case(schedule=(c.Evaluate(0.0),)),
        case(schedule=(c.Forward(), c.Forward(), c.Backward(), c.Forward(), c.Backward(), c.Backward())),
        case(schedule=(c.Forward(1e30), c.Evaluate(1e-30), c.Backward())),
        case(c.GroupedLinear(groups=2), rows=32),
        case(c.Chain((c.Chain(()), c.Linear()))),
        case(recipe=c.DelayedScaling(history=1024, margin=8), seed=2**32 - 1),
        case(c.Region(c.Region(c.Linear()))),
    ],
)
def test_odd_cases_that_make_sense_are_accepted(sensible: c.Case) -> None:
    validity.check(sensible)


@settings(database=None, deadline=None, derandomize=True, max_examples=300)
@given(st.data())
def test_damaged_json_is_refused_or_still_a_case(data: st.DataObject) -> None:
    damaged = bytearray(c.encode(PLAIN))
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    try:
        validity.check(validity.decode(bytes(damaged)))
    except InvalidInput as error:
        assert str(error).isprintable()  # noqa: PT017
