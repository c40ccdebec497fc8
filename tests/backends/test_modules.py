"""Each kind of module computes, forward and backward, what plain torch computes, to its precision."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch

from harness.backends import te_version
from harness.errors import ReleaseLacks
from tests.backends import references
from tests.backends.references import ACTIVATIONS, relative_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from harness.backends.base import Backend

HIDDEN, ROWS = 64, 32


def recipe(name: str) -> Any:
    from transformer_engine.common.recipe import DelayedScaling, Format

    from harness.api import recipe_class

    return {
        "off": lambda: None,
        "delayed": DelayedScaling,
        "delayed_e4m3": lambda: DelayedScaling(
            fp8_format=Format.E4M3, amax_history_len=4, amax_compute_algo="most_recent", margin=1
        ),
        "current": lambda: recipe_class("Float8CurrentScaling")(),
        "current_pow2": lambda: recipe_class("Float8CurrentScaling")(use_power_2_scales=True),
    }[name]()


# Relative error of outputs, and of gradients: E4M3 keeps 3 bits of a number, E5M2 keeps 2.
PRECISION = {
    "off": (1e-5, 1e-5),
    "delayed": (0.06, 0.12),
    "delayed_e4m3": (0.06, 0.12),
    "current": (0.06, 0.12),
    "current_pow2": (0.06, 0.12),
}
TF32 = 2e-3
PRODUCTS = {"layernorm_mlp": 2, "operations": 2, "attention": 2, "transformer_layer": 4}
"""How many FP8 products follow one another in a module, each with an error of its own."""


def autocast(of: Any) -> AbstractContextManager[Any]:
    from harness import api

    return nullcontext() if of is None else api.autocast(True, of)


def _build(kind: str, **options: Any) -> Any:
    import transformer_engine.pytorch as te

    makers: dict[str, Callable[..., Any]] = {
        "linear": lambda: te.Linear(HIDDEN, HIDDEN, **options),
        "layernorm_linear": lambda: te.LayerNormLinear(HIDDEN, HIDDEN, **options),
        "rmsnorm_linear": lambda: te.LayerNormLinear(HIDDEN, HIDDEN, normalization="RMSNorm", **options),
        "layernorm_mlp": lambda: te.LayerNormMLP(HIDDEN, 2 * HIDDEN, **options),
        "grouped_linear": lambda: te.GroupedLinear(2, HIDDEN, HIDDEN, **options),
        "layernorm": lambda: te.LayerNorm(HIDDEN, **options),
        "rmsnorm": lambda: te.RMSNorm(HIDDEN, **options),
        "operations": lambda: te.ops.Sequential(te.ops.Linear(HIDDEN, HIDDEN), te.ops.Linear(HIDDEN, HIDDEN)),
        "attention": lambda: te.MultiheadAttention(
            HIDDEN, 4, attention_dropout=0.0, attn_mask_type="causal", fuse_qkv_params=True, **options
        ),
        "transformer_layer": lambda: te.TransformerLayer(
            HIDDEN, 2 * HIDDEN, 4, hidden_dropout=0.0, attention_dropout=0.0, fuse_qkv_params=True, **options
        ),
    }
    return makers[kind]()


REFERENCES = {
    "linear": references.linear,
    "layernorm_linear": references.layernorm_linear,
    "rmsnorm_linear": references.layernorm_linear,
    "layernorm_mlp": references.layernorm_mlp,
    "grouped_linear": references.grouped_linear,
    "layernorm": references.layernorm,
    "rmsnorm": references.rmsnorm,
    "operations": references.operations,
    "attention": references.attention,
    "transformer_layer": references.transformer_layer,
}


def _input(kind: str, backend: Backend) -> torch.Tensor:
    shape = (ROWS, 2, HIDDEN) if kind in ("attention", "transformer_layer") else (ROWS, HIDDEN)
    return torch.randn(shape, device=backend.device, requires_grad=True)


def _step(
    function: Callable[[torch.Tensor], torch.Tensor], module: Any, x: torch.Tensor
) -> list[torch.Tensor]:
    """Return the output, the input's gradient and the parameters' gradients, by a fixed upstream."""
    output = function(x)
    upstream = torch.linspace(-1.0, 1.0, output.numel(), device=output.device).cos().reshape(output.shape)
    gradients = torch.autograd.grad(output, [x, *module.parameters()], upstream.to(output.dtype))
    return [output.detach(), *gradients]


def assert_agrees_with_torch(*, kind: str, module: Any, recipe_name: str, backend: Backend) -> None:
    x = _input(kind, backend)
    arguments = ([ROWS // 2, ROWS // 2],) if kind == "grouped_linear" else ()

    def with_te(x: torch.Tensor) -> torch.Tensor:
        with autocast(recipe(recipe_name)):
            output: torch.Tensor = module(x, *arguments)
        return output

    for _ in range(2):  # delayed scaling has seen nothing in the first step
        found = _step(with_te, module, x)
    expected = _step(lambda x: REFERENCES[kind](module, x), module, x)
    assert len(found) == len(expected)
    of_output, of_gradient = PRECISION[recipe_name]
    if backend.name == "cuda":  # cuBLAS multiplies float32 in TF32
        of_output, of_gradient = max(of_output, TF32), max(of_gradient, TF32)
    products = PRODUCTS.get(kind, 1)
    assert relative_error(found[0], expected[0]) < of_output * products
    for mine, theirs in zip(found[1:], expected[1:], strict=True):
        assert relative_error(mine, theirs) < of_gradient * products, tuple(theirs.shape)


def require_current_scaling_in_groups(backend: Backend) -> None:
    """Raise ReleaseLacks where GroupedLinear does not run under current scaling."""
    from harness import case as c
    from harness.probe import detect
    from harness.support import Support

    case = c.Case(graph=c.GroupedLinear(), schedule=(), recipe=c.CurrentScaling())
    Support(backend.device, detect()).check(case)


@pytest.mark.parametrize("recipe_name", PRECISION)
@pytest.mark.parametrize("kind", REFERENCES)
def test_module_agrees_with_torch(kind: str, recipe_name: str, backend: Backend) -> None:
    if kind == "grouped_linear" and recipe_name.startswith("current"):
        require_current_scaling_in_groups(backend)
    backend.seed(1)
    assert_agrees_with_torch(kind=kind, module=_build(kind), recipe_name=recipe_name, backend=backend)


def require_activation(name: str) -> None:
    """Raise ReleaseLacks where the installed release has no such activation."""
    from transformer_engine.pytorch.module.layernorm_mlp import _act_func

    try:
        _act_func(name)
    except NotImplementedError:
        raise ReleaseLacks(te_version(), f"the activation {name}") from None


@pytest.mark.parametrize("recipe_name", ["off", "delayed", "current"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mlp_agrees_with_torch_for_each_activation(
    activation: str, recipe_name: str, backend: Backend
) -> None:
    require_activation(activation)
    backend.seed(2)
    module = _build("layernorm_mlp", activation=activation)
    assert_agrees_with_torch(kind="layernorm_mlp", module=module, recipe_name=recipe_name, backend=backend)


def test_every_activation_of_this_release_is_covered() -> None:
    from transformer_engine.pytorch.module import layernorm_mlp

    if not hasattr(layernorm_mlp, "_get_act_func_supported_list"):
        pytest.skip("2.1 keeps the list inside a function")
    for name in ("off", "delayed", "current"):
        assert set(layernorm_mlp._get_act_func_supported_list(recipe(name))) <= set(ACTIVATIONS)


@pytest.mark.parametrize("recipe_name", ["off", "delayed", "current"])
@pytest.mark.parametrize("kind", ["linear", "layernorm_linear", "layernorm_mlp", "transformer_layer"])
def test_bfloat16_parameters_give_bfloat16(kind: str, recipe_name: str, backend: Backend) -> None:
    backend.seed(3)
    module = _build(kind, params_dtype=torch.bfloat16)
    x = _input(kind, backend).detach().bfloat16().requires_grad_()
    with autocast(recipe(recipe_name)):
        output = module(x)
    output.sum().backward()
    assert output.dtype == torch.bfloat16
    assert all(parameter.grad.dtype == torch.bfloat16 for parameter in module.parameters())


def test_autocast_of_torch_decides_the_type(backend: Backend) -> None:
    module = _build("linear")
    x = _input("linear", backend)
    with torch.autocast("cuda", dtype=torch.bfloat16), autocast(recipe("delayed")):
        output = module(x)
    output.float().sum().backward()
    assert output.dtype == torch.bfloat16
    assert module.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("recipe_name", ["delayed", "current"])
def test_cached_weights_are_used_until_the_next_first_microbatch(recipe_name: str, backend: Backend) -> None:
    backend.seed(4)
    module = _build("linear", bias=False)
    x = _input("linear", backend)

    def output(first: bool | None) -> torch.Tensor:
        with autocast(recipe(recipe_name)):
            result: torch.Tensor = module(x, is_first_microbatch=first)
        torch.autograd.backward(result.sum())
        return result.detach()

    output(True)
    before = output(False)
    with torch.no_grad():
        # Halved, it still fits under the scale that the cached weights were cast with.
        module.weight.mul_(0.5)
    stale = output(False)
    fresh = output(True)
    assert relative_error(stale, before) < 0.1
    assert relative_error(fresh, 0.5 * stale) < 0.15


@pytest.mark.parametrize("recipe_name", ["delayed", "current"])
def test_quantized_parameters_learn(recipe_name: str, backend: Backend) -> None:
    import transformer_engine.pytorch as te

    from harness.api import quantized_init

    backend.seed(5)
    plain = te.Linear(HIDDEN, HIDDEN)
    backend.seed(5)
    with quantized_init(recipe(recipe_name)):
        module = te.Linear(HIDDEN, HIDDEN)
    assert relative_error(module.weight.detach().dequantize().cpu(), plain.weight.detach().cpu()) < 0.06
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    x = _input("linear", backend)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        with autocast(recipe(recipe_name)):
            loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert type(module.weight).__name__ == "Float8Tensor"
