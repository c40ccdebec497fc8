"""Golden cases of casts, amaxes, scales and transposes: all of them exact."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import torch

from tests.backends.golden_case import (
    DTYPES,
    Case,
    Outputs,
    current_quantizer,
    delayed_quantizer,
    extension,
    fp8_types,
    parts,
)
from tests.backends.golden_inputs import around_ties, every_bfloat16, noise, special, to_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FP8 = ("e4m3", "e5m2")
SCALES = {
    "1": 1.0,
    "0.37": 0.37,
    "tiny": 2.0**-20,
    "huge": 1e30,
    "max": torch.finfo(torch.float32).max,
    "small": 1e-38,
}
INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "noise": partial(noise, 16, 32, size=4.0),
    "unit": partial(noise, 16, 32),
    "special": special,
    "zero": partial(torch.zeros, 16, 32),
    "denormal": partial(noise, 16, 32, size=1e-39),
    "small": partial(noise, 16, 32, size=3e-37),
    "infinite": lambda: noise(16, 32).index_fill(0, torch.tensor([3]), math.inf),
    "one_nan": lambda: noise(16, 32).index_fill(0, torch.tensor([3]), math.nan),
    "large": partial(noise, 16, 32, size=3e38),
    "every_bfloat16": every_bfloat16,
    "ties": partial(around_ties, 448.0),
}


def _input(name: str, dtype: str = "fp32") -> torch.Tensor:
    return to_device(INPUTS[name](), DTYPES[dtype])


def _delayed(
    values: str,
    fp8: str,
    *,
    dtype: str = "fp32",
    scale: float = 1.0,
    amax: float = 0.0,
    usage: str = "both",
) -> Outputs:
    quantizer = delayed_quantizer(fp8, scale=scale, amax=amax, usage=usage)
    return {**parts(extension().quantize(_input(values, dtype), quantizer)), "amax": quantizer.amax}


def _delayed_shape(shape: tuple[int, ...], usage: str) -> Outputs:
    quantizer = delayed_quantizer("e4m3", scale=2.5, usage=usage)
    result = extension().quantize(to_device(noise(*shape, size=3.0)), quantizer)
    outputs = {**parts(result), "amax": quantizer.amax}
    if 0 in shape:
        del outputs["scale_inv"]  # allocated and never written
    return outputs


def quantize_cases() -> Iterator[Case]:
    """Delayed scaling: values, types, scales, usages, shapes, and the amax that is already there."""
    for values, dtype, fp8, scale in product(("noise", "special"), DTYPES, FP8, SCALES):
        run = partial(_delayed, values, fp8, dtype=dtype, scale=SCALES[scale])
        yield Case("quantize", f"{values}-{dtype}-{fp8}-scale_{scale}", run)
    for values, fp8, usage in product(("noise", "special"), FP8, ("row", "column")):
        run = partial(_delayed, values, fp8, scale=0.37, usage=usage)
        yield Case("quantize", f"{values}-{fp8}-{usage}", run)
    for shape, usage in product(((3, 5), (64,), (2, 4, 16), (128, 256), (0, 32)), ("row", "both")):
        name = "x".join(map(str, shape))
        yield Case("quantize", f"shape_{name}-{usage}", partial(_delayed_shape, shape, usage))
    for amax in (0.5, 100.0, math.inf, math.nan):
        yield Case("quantize", f"amax_was_{amax}", partial(_delayed, "unit", "e4m3", amax=amax))
    for fp8 in FP8:
        run = partial(_delayed, "every_bfloat16", fp8, dtype="bf16", usage="row")
        yield Case("quantize", f"every_bfloat16-{fp8}", run)
        yield Case("quantize", f"ties-{fp8}", partial(_delayed, "ties", fp8, usage="row"))


def _into(before: str, after: str, noop: float | None, current: bool) -> Outputs:
    first = current_quantizer("e4m3", usage=before) if current else delayed_quantizer("e4m3", usage=before)
    output = first(to_device(noise(16, 32, salt=1)))
    quantizer = (
        current_quantizer("e4m3", usage=after)
        if current
        else delayed_quantizer("e4m3", scale=7.0, usage=after)
    )
    flag = None if noop is None else torch.tensor([noop], dtype=torch.float32, device="cuda")
    extension().quantize(to_device(noise(16, 32, salt=2, size=9.0)), quantizer, output, flag)
    outputs = parts(output)
    outputs["transpose_invalid"] = torch.tensor([output._transpose_invalid], dtype=torch.uint8)
    if not current:
        outputs["amax"] = quantizer.amax
    return outputs


def output_cases() -> Iterator[Case]:
    """Casts into a tensor that exists, of both scalings, with and without the flag that turns them off."""
    usages = (("both", "both"), ("row", "row"), ("row", "both"), ("both", "row"))
    for current, noop, (before, after) in product((False, True), (None, 0.0, 1.0), usages):
        if noop == 1.0 and before != after:
            continue  # a buffer that is added and then not written holds whatever was in memory
        name = f"{'current' if current else 'delayed'}-{before}_to_{after}-noop_{noop}"
        yield Case("output", name, partial(_into, before, after, noop, current))


def _current(
    values: str,
    fp8: str,
    *,
    dtype: str = "fp32",
    power_of_2: bool = False,
    epsilon: float = 0.0,
    usage: str = "both",
) -> Outputs:
    quantizer = current_quantizer(fp8, power_of_2=power_of_2, epsilon=epsilon, usage=usage)
    return parts(extension().quantize(_input(values, dtype), quantizer))


def current_cases() -> Iterator[Case]:
    """Current scaling: values, types, formats, power-of-two scales, epsilons."""
    inputs = ("noise", "special", "zero", "denormal", "small", "infinite", "one_nan", "large")
    for values, dtype, fp8, power_of_2, epsilon in product(
        inputs, ("fp32", "bf16"), FP8, (False, True), (0.0, 1e-3, 8.0)
    ):
        name = f"{values}-{dtype}-{fp8}-{'pow2' if power_of_2 else 'any'}-eps_{epsilon}"
        run = partial(_current, values, fp8, dtype=dtype, power_of_2=power_of_2, epsilon=epsilon)
        yield Case("current", name, run)
    for usage in ("row", "column"):
        yield Case("current", f"noise-{usage}", partial(_current, "unit", "e4m3", usage=usage))


def _dequantize(fp8: str, dtype: str, scale_inv: float) -> Outputs:
    from transformer_engine.pytorch.constants import TE_DType

    source = delayed_quantizer(fp8, usage="row")(to_device(noise(16, 16)))
    source._data.copy_(torch.arange(256, dtype=torch.int32).to(torch.uint8).reshape(16, 16))
    source._scale_inv.fill_(scale_inv)
    return {"out": extension().dequantize(source, TE_DType[DTYPES[dtype]])}


def dequantize_cases() -> Iterator[Case]:
    """All 256 bytes of both formats."""
    for fp8, dtype, scale_inv in product(FP8, DTYPES, (1.0, 0.37, 2.0**-120, 3e30)):
        run = partial(_dequantize, fp8, dtype, scale_inv)
        yield Case("dequantize", f"{fp8}-{dtype}-{scale_inv:g}", run)


def _transpose(shape: tuple[int, ...], given: bool) -> Outputs:
    source = ((noise(*shape) + 1.0) * 127.0).to(torch.uint8)
    out = torch.zeros(shape[-1], *shape[:-1], dtype=torch.uint8, device="cuda") if given else None
    return {"out": extension().fp8_transpose(to_device(source, torch.uint8), fp8_types()["e4m3"], out=out)}


def transpose_cases() -> Iterator[Case]:
    """Transposes of two and three dimensions, given an output or not."""
    for shape, given in product(((16, 32), (2, 4, 16), (48, 16)), (False, True)):
        name = f"{'x'.join(map(str, shape))}-{'given' if given else 'new'}"
        yield Case("transpose", name, partial(_transpose, shape, given))


def _amax(values: str, dtype: str) -> Outputs:
    amax = torch.full((1,), 3.0).to(device="cuda")
    extension().compute_amax(_input(values, dtype), amax)
    return {"amax": amax}


def amax_cases() -> Iterator[Case]:
    """The amax alone, which overwrites what was there."""
    for values, dtype in product(("noise", "special"), DTYPES):
        yield Case("amax", f"{values}-{dtype}", partial(_amax, values, dtype))


def _split(usage: str, current: bool, sections: tuple[int, ...]) -> Outputs:
    quantizers = [
        current_quantizer("e4m3", usage=usage)
        if current
        else delayed_quantizer("e4m3", scale=1.5 + index, usage=usage)
        for index in range(len(sections))
    ]
    tensor = to_device(noise(sum(sections), 32, size=5.0), torch.bfloat16)
    results = extension().split_quantize(tensor, list(sections), quantizers)
    outputs: Outputs = {}
    for index, (result, quantizer, rows) in enumerate(zip(results, quantizers, sections, strict=True)):
        if rows:
            outputs.update(parts(result, prefix=f"{index}_"))
        if not current:
            outputs[f"{index}_amax"] = quantizer.amax
    return outputs


def split_cases() -> Iterator[Case]:
    """Sections quantized each by its own quantizer, an empty one among them."""
    for usage, current, sections in product(("row", "both"), (False, True), ((16, 32), (16, 0, 48))):
        name = f"{'current' if current else 'delayed'}-{usage}-{'_'.join(map(str, sections))}"
        yield Case("split", name, partial(_split, usage, current, sections))


def _update(algorithm: str, length: int, margin: int, fp8: str) -> Outputs:
    amaxes = (0.0, 2.0, math.inf, math.nan, 1e-40, 0.5, 0.0, 3e38)
    histories = [noise(length, 5, salt=1, size=8.0).abs(), noise(length, 3, salt=2).abs()]
    histories[0][0, 0] = 0.0  # nothing recorded in this column: neither rolls nor scales
    histories[0][-1, 1] = math.inf
    histories[0][-1, 4] = math.nan
    histories[1][:, 2] = 0.0
    scales = [torch.tensor([1.0, 2.0, 3.0, math.inf, 5.0]), torch.tensor([6.0, 7.0, 8.0])]
    on_device = [to_device(tensor) for tensor in (*histories, *scales)]
    extension().fused_amax_and_scale_update_after_reduction(
        to_device(torch.tensor(amaxes)), on_device[:2], on_device[2:], algorithm, fp8_types()[fp8], margin
    )
    return dict(zip(("history_0", "history_1", "scale_0", "scale_1"), on_device, strict=True))


def update_cases() -> Iterator[Case]:
    """The delayed-scaling update; 300 entries are more than one CUDA block takes at once."""
    for algorithm, length, margin, fp8 in product(
        ("max", "most_recent"), (1, 2, 3, 16, 300, 1024), (0, 2, -1), FP8
    ):
        if length > 16 and (margin != 0 or fp8 != "e4m3"):
            continue  # long histories are large files, and the arithmetic of the scale does not see them
        name = f"{algorithm}-{length}-margin_{margin}-{fp8}"
        yield Case("update", name, partial(_update, algorithm, length, margin, fp8))


def cast_cases() -> Iterator[Case]:
    """All cases of this module."""
    yield from quantize_cases()
    yield from output_cases()
    yield from current_cases()
    yield from dequantize_cases()
    yield from transpose_cases()
    yield from amax_cases()
    yield from split_cases()
    yield from update_cases()
