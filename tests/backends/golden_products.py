"""Golden cases of matrix products, one by one and grouped: agree to rounding."""

from __future__ import annotations

import inspect
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from tests.backends.golden_case import DTYPES, Case, Outputs, current_quantizer, delayed_quantizer, parts
from tests.backends.golden_inputs import noise, to_device

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, INPUTS, OUTPUTS = 32, 64, 48
SHAPES = {
    "TN": ((OUTPUTS, INPUTS), (ROWS, INPUTS)),
    "NN": ((OUTPUTS, INPUTS), (ROWS, OUTPUTS)),
    "NT": ((ROWS, INPUTS), (ROWS, OUTPUTS)),
}
"""The shapes of A and B as Linear multiplies: weight and input, weight and gradient, input and gradient."""
RESULTS = {"TN": (ROWS, OUTPUTS), "NN": (ROWS, INPUTS), "NT": (OUTPUTS, INPUTS)}

# Results are rounded to the output type, after sums whose order differs; TF32 keeps 10 bits of each factor.
TOLERANCES = {"fp32": 1e-5, "bf16": 8e-3, "fp16": 1e-3}
TF32 = 2e-3
# Hopper's tensor cores keep about 14 bits of an FP8 sum between the steps of a product.
FP8_SUM = 5e-4


def _operands(layout: str, kind: str) -> tuple[Any, Any]:
    shape_a, shape_b = SHAPES[layout]
    a, b = noise(*shape_a, salt=3), noise(*shape_b, salt=4, size=2.0)
    if kind in DTYPES:
        return to_device(a, DTYPES[kind]), to_device(b, DTYPES[kind])
    left, right = kind.split("_")
    return (
        delayed_quantizer(left, scale=100.0)(to_device(a, torch.bfloat16)),
        delayed_quantizer(right, scale=50.0)(to_device(b, torch.bfloat16)),
    )


def by_release(function: Any) -> dict[str, Any]:
    """Return the arguments of a product that not every release has: workspaces up to 2.9, quantizers."""
    workspace = torch.empty(1024, dtype=torch.uint8, device="cuda")
    known = {"workspace": workspace, "workspaces": [workspace] * 2, "quantization_params": [None, None]}
    wanted = inspect.signature(function).parameters
    return {
        name: value
        for name, value in known.items()
        if name in wanted and wanted[name].default is inspect.Parameter.empty
    }


def _gemm(layout: str, kind: str, dtype: str, **options: Any) -> Outputs:
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    options.update(by_release(general_gemm))
    if options.pop("with_bias", False):
        options["bias"] = to_device(noise(OUTPUTS, salt=5), DTYPES[dtype])
    a, b = _operands(layout, kind)
    result, bias_gradient, gelu_input, _ = general_gemm(
        a, b, out_dtype=DTYPES[dtype], layout=layout, **options
    )
    outputs = parts(result)
    if bias_gradient is not None and options.get("grad"):
        outputs["bias_gradient"] = bias_gradient
    if gelu_input is not None:
        outputs["gelu_input"] = gelu_input
    return outputs


def _tolerance(kind: str, out: str) -> float:
    return TF32 if kind == "fp32" else TOLERANCES[out]


def _plain_cases() -> Iterator[Case]:
    for layout, kind, out, split in product(
        SHAPES, ("e4m3_e4m3", "e4m3_e5m2"), ("bf16", "fp32"), (False, True)
    ):
        name = f"{layout}-{kind}-{out}-{'split' if split else 'fast'}"
        run = partial(_gemm, layout, kind, out, use_split_accumulator=split)
        tolerance = max(TOLERANCES[out], FP8_SUM)
        yield Case("gemm", name, run, exact=False, tolerance=tolerance)
    for layout, kind in product(SHAPES, ("bf16", "fp16", "fp32")):
        run = partial(_gemm, layout, kind, kind)
        yield Case("gemm", f"{layout}-{kind}", run, exact=False, tolerance=_tolerance(kind, kind))


def _epilogue_cases() -> Iterator[Case]:
    for kind, out in (("e4m3_e4m3", "bf16"), ("bf16", "bf16"), ("fp32", "fp32")):
        tolerance = _tolerance(kind, out)
        run = partial(_gemm, "TN", kind, out, with_bias=True, use_split_accumulator=True)
        yield Case("gemm", f"bias-{kind}", run, exact=False, tolerance=tolerance)
        run = partial(_gemm, "TN", kind, out, with_bias=True, gelu=True)
        yield Case("gemm", f"gelu-{kind}", run, exact=False, tolerance=tolerance)
    for kind in ("bf16", "fp32"):
        run = partial(_gemm, "NT", kind, kind, with_bias=True, grad=True)
        yield Case("gemm", f"bias_gradient-{kind}", run, exact=False, tolerance=_tolerance(kind, kind))


def _accumulate(kind: str, out: str) -> Outputs:
    destination = to_device(noise(*RESULTS["NT"], salt=6, size=3.0), DTYPES[out])
    return _gemm("NT", kind, out, out=destination, accumulate=True, use_split_accumulator=True)


def _accumulating_cases() -> Iterator[Case]:
    for kind, out in product(("e4m3_e5m2", "bf16"), ("fp32", "bf16")):
        run = partial(_accumulate, kind, out)
        tolerance = max(TOLERANCES[out], FP8_SUM if kind != "bf16" else 0.0)
        yield Case("gemm", f"accumulate-{kind}-{out}", run, exact=False, tolerance=tolerance)


def _to_fp8(kind: str, current: bool) -> Outputs:
    quantizer = (
        current_quantizer("e4m3", usage="row")
        if current
        else delayed_quantizer("e4m3", scale=20.0, usage="row")
    )
    outputs = _gemm("TN", kind, "bf16", quantization_params=quantizer, use_split_accumulator=True)
    if not current:
        outputs["amax"] = quantizer.amax
    return outputs


def _quantizing_cases() -> Iterator[Case]:
    for kind, current in product(("e4m3_e4m3", "bf16"), (False, True)):
        name = f"to_fp8-{kind}-{'current' if current else 'delayed'}"
        run = partial(_to_fp8, kind, current)
        yield Case("gemm", name, run, exact=False, tolerance=TOLERANCES["bf16"])


def gemm_cases() -> Iterator[Case]:
    """FP8, bfloat16 and float32 products in the three layouts, with every epilogue that TE asks for."""
    yield from _plain_cases()
    yield from _epilogue_cases()
    yield from _accumulating_cases()
    yield from _quantizing_cases()


def _grouped(layout: str, kind: str, *, bias: bool, single: bool, accumulate: bool) -> Outputs:
    from transformer_engine.pytorch.cpp_extensions import general_grouped_gemm

    pairs = [_operands(layout, kind) for _ in range(2)]
    rows, columns = RESULTS[layout]
    shapes = [(2 * rows, columns)] if single else [(rows, columns)] * 2
    out = [to_device(noise(*shape, salt=8), torch.bfloat16) for shape in shapes]
    grad = layout == "NT"
    biases = [to_device(noise(OUTPUTS, salt=9 + index), torch.bfloat16) for index in range(2)]
    _, returned, _ = general_grouped_gemm(
        [pair[0] for pair in pairs],
        [pair[1] for pair in pairs],
        out,
        out_dtype=torch.bfloat16,
        layout=layout,
        m_splits=[ROWS, ROWS],
        grad=grad,
        accumulate=accumulate,
        bias=biases,
        use_bias=bias,
        use_split_accumulator=True,
        single_output=single,
        **by_release(general_grouped_gemm),
    )
    outputs = {f"out_{index}": tensor for index, tensor in enumerate(out)}
    if bias and grad:
        outputs.update({f"bias_gradient_{index}": tensor for index, tensor in enumerate(returned)})
    return outputs


def grouped_cases() -> Iterator[Case]:
    """Grouped products as GroupedLinear makes them."""
    for layout, kind, bias in product(SHAPES, ("e4m3_e5m2", "bf16"), (False, True)):
        if bias and (layout == "NN" or (layout == "NT" and kind != "bf16")):
            continue  # TE adds a bias in forward, and lets the GEMM sum its gradient in bfloat16 only
        name = f"{layout}-{kind}-{'bias' if bias else 'plain'}"
        run = partial(_grouped, layout, kind, bias=bias, single=layout != "NT", accumulate=False)
        yield Case("grouped", name, run, exact=False, tolerance=TOLERANCES["bf16"])
    run = partial(_grouped, "NT", "e4m3_e5m2", bias=False, single=False, accumulate=True)
    yield Case("grouped", "NT-e4m3_e5m2-accumulate", run, exact=False, tolerance=TOLERANCES["bf16"])


def product_cases() -> Iterator[Case]:
    """All cases of this module."""
    yield from gemm_cases()
    yield from grouped_cases()
