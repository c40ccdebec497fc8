"""Tensors are compared by their bits, and a difference is measured and placed."""

from __future__ import annotations

import pytest
import torch

from harness.comparison import compare_tensors, equal_bits, measure
from harness.trace import TensorKey, Trace

NAN = float("nan")


def trace(*outputs: torch.Tensor | None) -> Trace:
    return Trace(tensors={TensorKey("output", i): tensor for i, tensor in enumerate(outputs)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.float64])
def test_a_tensor_has_the_bits_of_its_copy(dtype: torch.dtype) -> None:
    tensor = torch.arange(8).to(dtype)
    assert equal_bits(tensor, tensor.clone())


def test_nan_equals_itself_and_zero_has_a_sign() -> None:
    assert equal_bits(torch.tensor([NAN]), torch.tensor([NAN]))
    assert not equal_bits(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_one_bit_is_a_difference() -> None:
    one = torch.ones(4)
    other = one.clone()
    other[2] = torch.nextafter(one[2], torch.tensor(2.0))
    rows = list(compare_tensors("output", trace(one), trace(other)))

    assert len(rows) == 1
    difference = rows[0][1]
    assert difference is not None
    assert (difference.elements, difference.total) == (1, 4)
    assert difference.absolute == pytest.approx(2**-23)


def test_shapes_and_dtypes_must_agree() -> None:
    assert not equal_bits(torch.ones(2, 3), torch.ones(3, 2))
    rows = list(compare_tensors("output", trace(torch.ones(2)), trace(torch.ones(2).bfloat16())))
    assert "bfloat16" in rows[0][2]


def test_none_against_a_tensor_is_a_difference() -> None:
    assert [row[2] for row in compare_tensors("output", trace(None), trace(torch.ones(1)))] == [
        "expected none, got one"
    ]
    assert list(compare_tensors("output", trace(None), trace(None))) == []


def test_only_the_first_iteration_that_differs_is_reported() -> None:
    rows = list(compare_tensors("output", trace(*[torch.zeros(1)] * 3), trace(*[torch.ones(1)] * 3)))
    assert [row[0].iteration for row in rows] == [0]


def test_iterations_that_one_run_did_not_reach_are_not_compared() -> None:
    assert list(compare_tensors("output", trace(torch.ones(1), torch.ones(1)), trace(torch.ones(1)))) == []


def test_packed_state_is_taken_apart_by_name() -> None:
    key = TensorKey("FP8 state", 0)
    layout = [("a.scale", 2), ("b.scale", 3)]
    expected = Trace(tensors={key: torch.zeros(5)}, state_layout={0: layout})
    actual = Trace(tensors={key: torch.tensor([0.0, 0.0, 0.0, 7.0, 0.0])}, state_layout={0: layout})

    assert [row[3] for row in compare_tensors("FP8 state", expected, actual)] == ["b.scale"]


def test_a_difference_is_relative_to_the_largest_expected() -> None:
    difference = measure(torch.tensor([1.0, -4.0]), torch.tensor([2.0, -4.0]))
    assert (difference.absolute, difference.relative) == (1.0, 0.25)


def test_infinite_and_nan_differences_do_not_vanish() -> None:
    assert measure(torch.tensor([1.0]), torch.tensor([NAN])).absolute == float("inf")
    assert measure(torch.tensor([float("inf")]), torch.tensor([float("inf")])).absolute == 0.0
