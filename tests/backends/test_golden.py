"""Every golden case gives what an H200 gave: bit for bit where that is promised, else to rounding.

On the cuda backend the real extension is compared with its own recording, exactly where exactness is
promised: what differs there is a change of Transformer Engine or of the GPU.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
import torch

from tests.backends.golden_cases import all_cases
from tests.backends.golden_files import FOLDER, load

if TYPE_CHECKING:
    from tests.backends.golden_case import Case, Outputs

CASES = list(all_cases())
MOST_OFF_BY_ONE = 0.02
"""The part of FP8 bytes that may be one step off, where the value that is cast differs by rounding."""


@functools.cache
def recorded(family: str) -> dict[str, Outputs | str]:
    return load(FOLDER / f"{family}.npz")


def assert_same_bits(*, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """NaNs count as equal whatever bits they have: a GPU writes one pattern, a CPU carries it on."""
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    kind = kinds[found.element_size()]
    differs = found.contiguous().view(kind) != expected.contiguous().view(kind)
    if found.is_floating_point():
        differs &= ~(found.isnan() & expected.isnan())
    places = differs.flatten().nonzero().flatten()[:5].tolist()
    assert not places, (
        f"{what}: {int(differs.sum())} of {differs.numel()} differ, at {places}: "
        f"expected {expected.flatten()[places].tolist()}, found {found.flatten()[places].tolist()}"
    )


def fp8_steps(data: torch.Tensor) -> torch.Tensor:
    """Return FP8 bytes as integers in the order of the numbers they stand for; both zeros are 0."""
    magnitude = (data & 0x7F).int()
    return torch.where(data > 0x7F, -magnitude, magnitude)


def assert_close(*, found: torch.Tensor, expected: torch.Tensor, tolerance: float, what: str) -> None:
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    if found.dtype == torch.uint8:
        steps = (fp8_steps(found) - fp8_steps(expected)).abs()
        assert steps.max() <= 1, f"{what}: an FP8 value is {int(steps.max())} steps off"
        off = int((steps > 0).sum()) / steps.numel()
        assert off <= MOST_OFF_BY_ONE, f"{what}: {off:.1%} of the FP8 values are a step off"
        return
    error = float((found.float() - expected.float()).abs().max())
    allowed = tolerance * float(expected.float().abs().max())
    assert error <= allowed, f"{what}: off by {error:.3g}, allowed {allowed:.3g}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case_gives_what_the_gpu_gave(case: Case) -> None:
    assert case.name in recorded(case.family), "not recorded: run tests.backends.record_golden on a GPU"
    expected = recorded(case.family)[case.name]
    if isinstance(expected, str):
        with pytest.raises((RuntimeError, NotImplementedError)):
            case.run()
        return
    found = {name: tensor.detach().cpu() for name, tensor in case.run().items()}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        what = f"{case}, {name}"
        if case.exact:
            assert_same_bits(found=found[name], expected=tensor, what=what)
        else:
            assert_close(found=found[name], expected=tensor, tolerance=case.tolerance, what=what)
