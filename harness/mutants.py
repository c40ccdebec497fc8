"""The mutants of Transformer Engine's recompute code, and of our correction of it: which there are.

A mutant's id names the file, the function, the operator and the how-manieth place it is of that operator in
that function: ``pytorch/distributed.py:checkpoint:delete:3``. It survives whatever moves lines, and changes
to other functions. Sources are read, and nothing is imported: ``harness.mutation`` plants them.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from harness.backends.installed import te_directory
from harness.errors import InvalidInput
from harness.named_mutants import NAMED, rewritten
from harness.operators import BLOCKS, Edit, Extent, Function, edits

CORRECTION = "harness/correction.py"

_ASKS_FOR_THE_PHASE = (
    "is_fp8_activation_recompute_enabled", "in_fp8_activation_recompute_phase",
    "use_reentrant_activation_recompute", "_check_fp8_reduce_and_update",
)  # fmt: skip
_RECOMPUTES_ITSELF = (
    "recompute_for_bwd", "save_for_checkpoint", "is_recomputation", "_recompute", "checkpoint",
)  # fmt: skip

WHOLE_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "pytorch/distributed.py": (
        "get_all_rng_states", "set_all_rng_states", "graph_safe_rng_available", "is_graph_safe_rng_state",
        "_get_cuda_rng_state", "_set_cuda_rng_state", "activation_recompute_forward.*",
        "is_fp8_activation_recompute_enabled", "in_fp8_activation_recompute_phase",
        "_get_active_autocast_contexts", "_CheckpointFunction.*", "_CheckpointFrame.*",
        "_recomputation_hook.*", "_checkpoint_hook.*", "use_reentrant_activation_recompute",
        "get_activation_recompute_contexts", "get_te_classes", "has_te_modules", "checkpoint",
        "CudaRNGStatesTracker.get_states", "CudaRNGStatesTracker.set_states",
    ),
    "pytorch/quantization.py": (
        "FP8GlobalStateManager.add_fp8_tensors_to_global_buffer", "FP8GlobalStateManager.autocast_*",
        "FP8GlobalStateManager.copy_forward_fp8_meta_tensors_for_recompute",
        "FP8GlobalStateManager.get_autocast_state", "FP8GlobalStateManager.get_fp8_recipe",
        "FP8GlobalStateManager.get_fwd_bwd_key", "FP8GlobalStateManager.get_key_in_buffer",
        "FP8GlobalStateManager.get_meta_tensor_key",
        "FP8GlobalStateManager.get_old_fp8_meta_tensors_for_recompute",
        "FP8GlobalStateManager.get_unique_autocast_key", "FP8GlobalStateManager.is_first_fp8_module",
        "FP8GlobalStateManager.is_fp8_enabled", "FP8GlobalStateManager.reduce_and_update_fp8_tensors",
        "FP8GlobalStateManager.restore_fp8_meta_tensors", "FP8GlobalStateManager.set_autocast_state",
        "FP8GlobalStateManager.split_key_in_buffer", "autocast.__enter__", "autocast.__exit__",
        "_has_delayed_scaling_state",
    ),
    "pytorch/module/base.py": (
        "TransformerEngineBaseModule.prepare_forward", "TransformerEngineBaseModule.prepare_forward_ctx",
        "TransformerEngineBaseModule.end_forward",
    ),
    "pytorch/module/layernorm_mlp.py": ("_LayerNormMLP._recompute",),
    "pytorch/module/linear.py": ("_check_fp8_reduce_and_update",),
    CORRECTION: ("*",),
}  # fmt: skip
"""Functions that serve recomputation and FP8 state across it, by file and pattern of their names."""

PLACES: dict[str, tuple[str, ...]] = {
    "pytorch/module/base.py": _ASKS_FOR_THE_PHASE,
    "pytorch/module/grouped_linear.py": _ASKS_FOR_THE_PHASE,
    "pytorch/module/layernorm_linear.py": _ASKS_FOR_THE_PHASE,
    "pytorch/module/layernorm_mlp.py": (*_ASKS_FOR_THE_PHASE, *_RECOMPUTES_ITSELF),
    "pytorch/module/linear.py": _ASKS_FOR_THE_PHASE,
}
"""Files whose other functions only ask for the phase here and there: in statements that name one of these."""


@dataclass(frozen=True)
class Mutant:
    """One fault: its id, what was done in words, the file's lines that must run for it to matter."""

    id: str
    description: str
    file: str
    function: str
    lines: tuple[int, int]
    original: Function
    change: Callable[[Function], Function]

    @functools.cached_property
    def mutated(self) -> Function:
        """The function's tree with the fault."""
        return self.change(self.original)

    @property
    def owner(self) -> str:
        """Name of the class around the function, empty where there is none."""
        return self.function.rpartition(".")[0]

    @property
    def in_correction(self) -> bool:
        """Whether the fault is in our own correction, which works before any case runs."""
        return self.file == CORRECTION

    @property
    def remembered(self) -> bool:
        """Whether the function remembers what it returned, so that it runs once in a process."""
        return any("cache" in ast.unparse(decorator) for decorator in self.original.decorator_list)

    def diff(self) -> str:
        """Return a unified diff of the function, its formatting normalised and comments left out."""
        before, after = (ast.unparse(tree).splitlines() for tree in (self.original, self.mutated))
        lines = difflib.unified_diff(before, after, self.file, f"{self.file} ({self.id})", lineterm="")
        return "\n".join(lines)


@functools.cache
def mutants() -> dict[str, Mutant]:
    """Return every mutant of the installed TE and of our correction, by id, named ones first.

    A function that this release does not have gives none.
    """
    found: dict[str, Mutant] = {}
    for file in dict.fromkeys([*WHOLE_FUNCTIONS, *PLACES]):
        for mutant in _in_file(file):
            found[mutant.id] = mutant
    return {**{mutant.id: mutant for mutant in _named()}, **found}


def find(name: str) -> Mutant:
    """Return a mutant by its id; raises InvalidInput where there is none."""
    try:
        return mutants()[name]
    except KeyError:
        near = difflib.get_close_matches(name, mutants(), 1)
        hint = f"; do you mean {near[0]}?" if near else "; `te-harness mutants` lists them."
        raise InvalidInput(f"this Transformer Engine has no mutant {name!r}{hint}") from None


def matching(patterns: tuple[str, ...]) -> list[Mutant]:
    """Return the mutants whose ids match one of some patterns, all where there is none.

    Raises InvalidInput for a pattern that matches nothing.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in mutants()):
            raise InvalidInput(f"no mutant matches {pattern!r}: `te-harness mutants` lists them.")
    return [
        mutant
        for name, mutant in mutants().items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def sources_digest() -> str:
    """Return a hash of the files that mutants are in: other sources have other mutants."""
    hashed = hashlib.sha256()
    for file in sorted({*WHOLE_FUNCTIONS, *PLACES}):
        hashed.update(file.encode() + (source(file).read_bytes() if source(file).exists() else b""))
    return hashed.hexdigest()


# --- Listing -----------------------------------------------------------------------------------------


def source(file: str) -> Path:
    """Return where a file of a mutant lies."""
    if file == CORRECTION:
        return Path(__file__).with_name("correction.py")
    return te_directory() / file


@functools.cache
def _functions(file: str) -> list[tuple[str, Function]]:
    """Return the functions of a file and the methods of its classes, with the class's name before the dot."""
    if not source(file).exists():
        return []
    tree = ast.parse(source(file).read_text(encoding="utf-8"))
    found: list[tuple[str, Function]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            methods = (method for method in node.body if isinstance(method, ast.FunctionDef))
            found += [(f"{node.name}.{method.name}", method) for method in methods]
    return found


def _in_file(file: str) -> Iterator[Mutant]:
    patterns, names = WHOLE_FUNCTIONS.get(file, ()), PLACES.get(file, ())
    for function, tree in _functions(file):
        if any(fnmatchcase(function, pattern) for pattern in patterns):
            yield from _in_function(file, function, tree, edits(tree))
        elif names:
            yield from _in_function(file, function, tree, edits(tree, functools.partial(_extent, names)))


def _in_function(file: str, function: str, tree: Function, found: Iterator[Edit]) -> Iterator[Mutant]:
    ordinals: Counter[str] = Counter()
    for edit in found:
        number = ordinals[edit.operator]
        ordinals[edit.operator] += 1
        name = f"{file}:{function}:{edit.operator}:{number}"
        yield Mutant(name, edit.description, file, function, edit.lines, tree, edit.applied_to)


def _extent(names: tuple[str, ...], statement: ast.stmt) -> Extent:
    """Return how much of a statement asks one of these names.

    A block is meant as a whole where its condition names one, unless it is to be false: what follows then is
    what modules do without recomputation.
    """
    if isinstance(statement, ast.FunctionDef):
        return "none"
    own = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, BLOCKS)]
    denied = {
        id(below)
        for child in own
        for node in ast.walk(child)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        for below in ast.walk(node)
    }
    asking = [node for child in own for node in ast.walk(child) if _word(node) in names]
    if not asking:
        return "none"
    return "own" if all(id(node) in denied for node in asking) else "all"


def _word(node: ast.AST) -> str | None:
    return getattr(node, "id", None) or getattr(node, "attr", None)


def _named() -> Iterator[Mutant]:
    for named in NAMED:
        for function, tree in _functions(named.file):
            mutated = rewritten(tree, named) if function == named.function else None
            if mutated is not None:
                span = tree.lineno, tree.end_lineno or tree.lineno
                name = f"named:{named.name}"
                yield Mutant(name, named.description, named.file, function, span, tree, _always(mutated))


def _always(mutated: Function) -> Callable[[Function], Function]:
    return lambda _original: mutated
