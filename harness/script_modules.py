"""Scripts: how the modules and recipes of a case are made, and in which environment, as Python."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from harness import case as c
from harness.graph_traits import recipe_in, with_parents
from harness.script_text import call, indented, number

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES: Final[dict[type[c.Module], str]] = {
    c.Linear: "linear",
    c.LayerNormLinear: "layernorm_linear",
    c.LayerNormMLP: "mlp",
    c.GroupedLinear: "grouped",
    c.LayerNorm: "layernorm",
    c.RMSNorm: "rmsnorm",
    c.MultiheadAttention: "attention",
    c.TransformerLayer: "layer",
    c.OpsLinear: "ops_linear",
    c.TorchLinear: "torch_linear",
    c.TorchLayerNorm: "torch_layernorm",
    c.TorchGELU: "gelu",
    c.TorchDropout: "dropout",
}

ATTENDING: Final = (c.MultiheadAttention, c.TransformerLayer)

HOST_DROPOUT: Final = [
    "class HostDropout(torch.nn.Dropout):",
    '    """Dropout whose mask is drawn on the CPU."""',
    "",
    "    def forward(self, x):",
    "        if not self.training:",
    "            return x",
    "        return x * ((torch.rand(x.shape) >= self.p) / (1 - self.p)).to(x)",
]


def variables(case: c.Case) -> list[str]:
    """Return a name for each module of a case, and then for each twin."""
    kinds = [_NAMES[type(leaf)] for leaf in c.modules(case)]
    counts, seen = Counter(kinds), Counter[str]()
    names = []
    for kind in kinds:
        seen[kind] += 1
        names.append(kind if counts[kind] == 1 else f"{kind}{seen[kind]}")
    return names + [f"{names[twin.module]}_copy" for twin in c.twins(case)]


def constructions(case: c.Case, names: Sequence[str], recompute: str) -> list[str]:
    """Return the lines that make the modules; ``recompute`` is an expression: whether they may recompute."""
    lines = [
        f"{name} = {_made(case, leaf, recompute)}" for name, leaf in zip(names, c.modules(case), strict=False)
    ]
    copies = zip(names[len(lines) :], c.twins(case), strict=True)
    lines += [f"{name} = copy.deepcopy({names[twin.module]})" for name, twin in copies]
    if case.quantized_parameters:
        lines = ["with te.quantized_model_init(recipe=recipe):", *indented(lines)]
    if case.rng_tracker:
        lines = [
            "tracker = te.CudaRNGStatesTracker()",
            f'tracker.add("model-parallel-rng", {case.seed + 1})',
            *lines,
        ]
    return lines


def _made(case: c.Case, leaf: c.Leaf, recompute: str) -> str:
    made = _constructor(case, leaf, recompute)
    if leaf.frozen:
        made += ".requires_grad_(False)"
    return made if leaf.training else f"{made}.eval()"


def _constructor(case: c.Case, leaf: c.Leaf, recompute: str) -> str:
    width = str(case.width)
    half = case.dtype == "bfloat16"
    of_te = "params_dtype=torch.bfloat16" if half else ""
    plain = "dtype=torch.bfloat16" if half else ""
    of_torch = 'device="cuda"' + (f", {plain}" if plain else "")
    match leaf:
        case c.Linear():
            return call("te.Linear", width, width, *_options(leaf), of_te)
        case c.LayerNormLinear():
            return call("te.LayerNormLinear", width, width, *_options(leaf), of_te)
        case c.LayerNormMLP():
            itself = f"checkpoint={recompute}" if leaf.recompute else ""
            return call("te.LayerNormMLP", width, str(2 * case.width), *_options(leaf), itself, of_te)
        case c.GroupedLinear():
            return call("te.GroupedLinear", str(leaf.groups), width, width, *_options(leaf), of_te)
        case c.LayerNorm() | c.RMSNorm():
            return call(f"te.{type(leaf).__name__}", width, plain)
        case c.MultiheadAttention() | c.TransformerLayer():
            return _attending(case, leaf, of_te)
        case c.OpsLinear():
            return call("te.ops.Sequential", call("te.ops.Linear", width, width, *_options(leaf), plain))
        case _:
            return _of_torch(leaf, width, of_torch)


def _of_torch(leaf: c.Leaf, width: str, options: str) -> str:
    match leaf:
        case c.TorchLinear():
            return call("torch.nn.Linear", width, width, *_options(leaf), options)
        case c.TorchLayerNorm():
            return call("torch.nn.LayerNorm", width, options)
        case c.TorchDropout():
            return call("HostDropout" if leaf.on_cpu else "torch.nn.Dropout", number(leaf.p))
        case _:
            return "torch.nn.GELU()"


def _attending(case: c.Case, leaf: c.MultiheadAttention | c.TransformerLayer, of_te: str) -> str:
    shared = [
        f"attention_dropout={number(leaf.dropout)}",
        "fuse_qkv_params=True" if case.quantized_parameters else "",
        "get_rng_state_tracker=lambda: tracker" if case.rng_tracker else "",
        of_te,
    ]
    if isinstance(leaf, c.MultiheadAttention):
        norm = "input_layernorm=True" if leaf.input_layernorm else ""
        return call("te.MultiheadAttention", str(case.width), "2", norm, 'attn_mask_type="no_mask"', *shared)
    sizes = [str(case.width), str(2 * case.width), "2"]
    own = [*_options(leaf), f"hidden_dropout={number(leaf.dropout)}", 'self_attn_mask_type="no_mask"']
    return call("te.TransformerLayer", *sizes, *own, *shared)


def _options(leaf: c.Leaf) -> list[str]:
    """Return the keyword arguments that have the names of the node's fields, defaults left out."""
    plain = type(leaf)()
    return [
        f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"
        for name in ("bias", "normalization", "activation")
        if (value := getattr(leaf, name, None)) != getattr(plain, name, None)
    ]


def recipe(node: c.Recipe) -> str:
    """Return a recipe; None stands for FP8 off."""
    form = "fp8_format=Format.E4M3" if getattr(node, "format", "") == "E4M3" else ""
    if isinstance(node, c.CurrentScaling):
        return call("Float8CurrentScaling", form)
    if isinstance(node, c.HighPrecision):
        return "None"
    algorithm = "" if node.algorithm == "max" else f'amax_compute_algo="{node.algorithm}"'
    margin = f"margin={node.margin}" if node.margin else ""
    return call("DelayedScaling", form, f"amax_history_len={node.history}", algorithm, margin)


def environment(case: c.Case) -> dict[str, str]:
    """Return the variables that decide whether a case gives the same bits twice, before TE is imported."""
    leaves = c.modules(case)
    wanted: dict[str, str] = {}
    if any(isinstance(leaf, ATTENDING) for leaf in leaves):
        # Which attention is chosen otherwise depends on what is installed.
        wanted |= {"NVTE_FLASH_ATTN": "0", "NVTE_FUSED_ATTN": "0"}
    if any(isinstance(leaf, c.TransformerLayer) for leaf in leaves):
        wanted["NVTE_BIAS_DROPOUT_FUSION"] = "0"
    if _fuses_gelu(case):
        wanted["NVTE_BIAS_GELU_NVFUSION"] = "0"
    if any(isinstance(step, c.LoadState) for step in case.schedule):
        wanted["NVTE_ALLOW_UNSAFE_PICKLE_EXTRA_STATE"] = "1"
    return wanted


def _fuses_gelu(case: c.Case) -> bool:
    """Tell whether a bias and a GELU, which are fused with FP8 off, may run so."""
    changed = any(isinstance(step, c.SetRecipe) for step in case.schedule)
    return any(
        isinstance(node, c.LayerNormMLP | c.TransformerLayer)
        and node.activation == "gelu"
        and (changed or isinstance(recipe_in(case, above), c.HighPrecision))
        for node, above in with_parents(case.graph)
    )
