"""Golden cases of norms, activations, softmaxes and bias gradients: agree to rounding."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from tests.backends.golden_case import (
    DTYPES,
    Case,
    Outputs,
    current_quantizer,
    delayed_quantizer,
    extension,
    parts,
)
from tests.backends.golden_inputs import noise, to_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

TOLERANCES = {"fp32": 2e-6, "bf16": 8e-3, "fp16": 1e-3}
PLAIN = ("gelu", "qgelu", "relu", "srelu", "silu")
GATED = ("geglu", "qgeglu", "reglu", "sreglu", "swiglu", "glu")
QUANTIZERS = ("none", "delayed", "delayed_row", "current", "current_e5m2")


def _quantizer(name: str) -> Any:
    if name == "none":
        return None
    usage = "row" if name.endswith("row") else "both"
    if name.startswith("delayed"):
        return delayed_quantizer("e4m3", scale=40.0, usage=usage)
    return current_quantizer("e5m2" if name.endswith("e5m2") else "e4m3", usage=usage)


def _with_amax(outputs: Outputs, quantizer: Any, name: str) -> Outputs:
    return {**outputs, "amax": quantizer.amax} if name.startswith("delayed") else outputs


def _norm_inputs(dtype: str, hidden: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kind = DTYPES[dtype]
    return (
        to_device(noise(16, hidden, salt=11, size=3.0) + 0.25, kind),
        to_device(noise(hidden, salt=12) + 1.0, kind),
        to_device(noise(hidden, salt=13), kind),
    )


def _norm_forward(kind: str, dtype: str, quantizer_name: str, hidden: int, centered: bool) -> Outputs:
    from transformer_engine.pytorch.constants import TE_DType

    tex = extension()
    x, weight, bias = _norm_inputs(dtype, hidden)
    quantizer = _quantizer(quantizer_name)
    rest = (1e-5, None, quantizer, TE_DType[DTYPES[dtype]], 0, centered)
    if kind == "layernorm":
        result, mean, rsigma = tex.layernorm_fwd(x, weight, bias, *rest)
    else:
        result, mean, rsigma = tex.rmsnorm_fwd(x, weight, *rest)
    outputs = {**parts(result), "rsigma": rsigma}
    if mean is not None:
        outputs["mean"] = mean
    return _with_amax(outputs, quantizer, quantizer_name)


def _norm_backward(kind: str, dtype: str, hidden: int, centered: bool) -> Outputs:
    tex = extension()
    x, weight, _ = _norm_inputs(dtype, hidden)
    upstream = to_device(noise(16, hidden, salt=14), DTYPES[dtype])
    rows = x.float()
    if kind == "layernorm":
        mean = rows.mean(-1)
        rsigma = (rows.var(-1, unbiased=False) + 1e-5).rsqrt()
        results = tex.layernorm_bwd(upstream, x, mean, rsigma, weight, 0, centered)
    else:
        rsigma = (rows.square().mean(-1) + 1e-5).rsqrt()
        if kind == "rmsnorm_add":
            addend = to_device(noise(16, hidden, salt=15), DTYPES[dtype])
            results = tex.rmsnorm_bwd_add(upstream, x, addend, rsigma, weight, 0, centered)
        else:
            results = tex.rmsnorm_bwd(upstream, x, rsigma, weight, 0, centered)
    return dict(zip(("dx", "dgamma", "dbeta"), results, strict=False))


def norm_cases() -> Iterator[Case]:
    """Both norms, their gammas centred at 0 and at 1."""
    for kind, dtype, quantizer, hidden, centered in product(
        ("layernorm", "rmsnorm"), ("fp32", "bf16"), QUANTIZERS, (32, 96), (False, True)
    ):
        name = f"{kind}-{dtype}-{quantizer}-{hidden}-{'centered' if centered else 'plain'}"
        run = partial(_norm_forward, kind, dtype, quantizer, hidden, centered)
        yield Case("norm", name, run, exact=False, tolerance=TOLERANCES[dtype])
    for kind, dtype, hidden, centered in product(
        ("layernorm", "rmsnorm", "rmsnorm_add"), ("fp32", "bf16"), (32, 96), (False, True)
    ):
        name = f"{kind}_backward-{dtype}-{hidden}-{'centered' if centered else 'plain'}"
        run = partial(_norm_backward, kind, dtype, hidden, centered)
        yield Case("norm", name, run, exact=False, tolerance=max(TOLERANCES[dtype], 1e-5))


def _activation_input(name: str, dtype: str) -> torch.Tensor:
    width = 64 if name in GATED or name == "clamped_swiglu" else 32
    return to_device(noise(16, width, salt=21, size=8.0), DTYPES[dtype])


def _activation(name: str, dtype: str, quantizer_name: str, options: tuple[float, ...] = ()) -> Outputs:
    quantizer = _quantizer(quantizer_name)
    result = getattr(extension(), name)(_activation_input(name, dtype), quantizer, *options)
    return _with_amax(parts(result), quantizer, quantizer_name)


def _activation_backward(
    name: str, dtype: str, quantizer_name: str, options: tuple[float, ...] = ()
) -> Outputs:
    quantizer = _quantizer(quantizer_name)
    upstream = to_device(noise(16, 32, salt=22), DTYPES[dtype])
    derivative = "clamped_dswiglu" if name == "clamped_swiglu" else f"d{name}"
    kernel = getattr(extension(), derivative)
    result = kernel(upstream, _activation_input(name, dtype), quantizer, *options)
    return _with_amax(parts(result), quantizer, quantizer_name)


def _activation_backward_with_bias(name: str, dtype: str, quantizer_name: str) -> Outputs:
    quantizer = _quantizer(quantizer_name)
    upstream = to_device(noise(16, 32, salt=22), DTYPES[dtype])
    kernel = getattr(extension(), f"dbias_d{name}")
    bias_gradient, result = kernel(upstream, _activation_input(name, dtype), quantizer)
    outputs = {**parts(result), "bias_gradient": bias_gradient}
    return _with_amax(outputs, quantizer, quantizer_name)


def activation_cases() -> Iterator[Case]:
    """Every activation, forward and backward, with the bias gradient where TE fuses it."""
    for name, dtype, quantizer in product((*PLAIN, *GATED, "clamped_swiglu"), ("fp32", "bf16"), QUANTIZERS):
        label = f"{name}-{dtype}-{quantizer}"
        run = partial(_activation, name, dtype, quantizer)
        yield Case("activation", label, run, exact=False, tolerance=TOLERANCES[dtype])
        run = partial(_activation_backward, name, dtype, quantizer)
        yield Case("activation", f"backward-{label}", run, exact=False, tolerance=TOLERANCES[dtype])
    for name, dtype in product(PLAIN, ("fp32", "bf16")):
        label = f"backward_with_bias-{name}-{dtype}"
        run = partial(_activation_backward_with_bias, name, dtype, "delayed")
        yield Case("activation", label, run, exact=False, tolerance=TOLERANCES[dtype])
    for direction, function in (("forward", _activation), ("backward", _activation_backward)):
        label = f"clamped_swiglu-limit_3_alpha_1-{direction}"
        run = partial(function, "clamped_swiglu", "fp32", "none", (3.0, 1.0))
        yield Case("activation", label, run, exact=False, tolerance=TOLERANCES["fp32"])


def _bias_gradient(dtype: str, quantizer_name: str) -> Outputs:
    quantizer = _quantizer(quantizer_name)
    gradient = to_device(noise(64, 32, salt=31), DTYPES[dtype])
    bias_gradient, result = extension().bgrad_quantize(gradient, quantizer)
    return _with_amax({**parts(result), "bias_gradient": bias_gradient}, quantizer, quantizer_name)


def bias_cases() -> Iterator[Case]:
    """A gradient quantized while its bias gradient is summed."""
    for dtype, quantizer in product(("fp32", "bf16"), QUANTIZERS):
        run = partial(_bias_gradient, dtype, quantizer)
        yield Case("bias", f"{dtype}-{quantizer}", run, exact=False, tolerance=TOLERANCES[dtype])


def _softmax(name: str, dtype: str) -> Outputs:
    tex = extension()
    shape = {"scaled_upper_triang_masked": (16, 16, 16), "scaled_aligned_causal_masked": (2, 2, 8, 16)}
    scores = to_device(noise(*shape.get(name, (2, 2, 16, 16)), salt=41, size=6.0), DTYPES[dtype])
    arguments: tuple[Any, ...] = (scores,)
    if name == "scaled_masked":
        mask = noise(2, 1, 16, 16, salt=42) > 0.3
        mask[0, 0, 5] = True  # a query that sees no key
        arguments = (scores, mask.to(device="cuda"))
    forward = getattr(tex, f"{name}_softmax_forward")(*arguments, 0.5)
    upstream = to_device(noise(*scores.shape, salt=43), DTYPES[dtype])
    backward = getattr(tex, f"{name}_softmax_backward")(upstream, forward, 0.5)
    return {"probabilities": forward, "gradient": backward}


def softmax_cases() -> Iterator[Case]:
    """The four fused softmaxes."""
    names = ("scaled", "scaled_masked", "scaled_upper_triang_masked", "scaled_aligned_causal_masked")
    for name, dtype in product(names, ("bf16", "fp16")):
        run = partial(_softmax, name, dtype)
        yield Case("softmax", f"{name}-{dtype}", run, exact=False, tolerance=TOLERANCES[dtype])


def function_cases() -> Iterator[Case]:
    """All cases of this module."""
    yield from norm_cases()
    yield from activation_cases()
    yield from bias_cases()
    yield from softmax_cases()
