"""The mutants that have a name: the parts of the fix, each reverted.

Each is written as one expression or statement of Transformer Engine's and what stands in its place. Where a
release does not have the first, the mutant does not exist for it.
"""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from harness.operators import Function


class NamedMutant(NamedTuple):
    """A fault by name: in which function, what, and what instead."""

    name: str
    description: str
    file: str
    function: str
    old: str
    new: str


NAMED = (
    NamedMutant(
        "guard-reverted",
        "phase 1 pushes in training mode only",
        "pytorch/module/base.py",
        "TransformerEngineBaseModule.prepare_forward",
        "is_fp8_activation_recompute_enabled()",
        "self.training and is_fp8_activation_recompute_enabled()",
    ),
    NamedMutant(
        "bypass-reverted",
        "entered with gradients off, the checkpoint pushes all the same",
        "pytorch/distributed.py",
        "checkpoint",
        "not torch.is_grad_enabled()",
        "False",
    ),
    NamedMutant(
        "bypass-context-lost",
        "entered with gradients off, the function runs without the forward context",
        "pytorch/distributed.py",
        "checkpoint",
        "forward_ctx, _ = context_fn()",
        "forward_ctx = nullcontext()",
    ),
    NamedMutant(
        "eligibility-reverted",
        "a reentrant call none of whose inputs needs a gradient pushes",
        "pytorch/distributed.py",
        "_CheckpointFunction.forward",
        "any(ctx.needs_input_grad)",
        "True",
    ),
    NamedMutant(
        "autocast-inside-reverted",
        "a region remembers at entry whether FP8 was on",
        "pytorch/distributed.py",
        "activation_recompute_forward.__enter__",
        "_IN_ACTIVATION_RECOMPUTE_REGION = self.activation_recompute",
        "_IN_ACTIVATION_RECOMPUTE_REGION = ("
        "self.activation_recompute and FP8GlobalStateManager.is_fp8_enabled())",
    ),
)


def rewritten(function: Function, named: NamedMutant) -> Function | None:
    """Return the function with the fault; None where it does not have what the fault replaces, once."""
    new = _parsed(named.new)
    if not isinstance(new, ast.Constant) and ast.dump(new) in map(ast.dump, ast.walk(function)):
        # The release is as the mutant would make it.
        return None
    rewriter = _Rewriter(_parsed(named.old), new)
    mutated = copy.deepcopy(function)
    rewriter.visit(mutated)
    return ast.fix_missing_locations(mutated) if rewriter.found == 1 else None


def _parsed(text: str) -> ast.AST:
    statement = ast.parse(text).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


class _Rewriter(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old = ast.dump(old)
        self._new = new
        self.found = 0

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the node, or what replaces it."""
        if ast.dump(node) != self._old:
            return self.generic_visit(node)
        self.found += 1
        return ast.copy_location(copy.deepcopy(self._new), node)
