"""Public names of Transformer Engine that changed between releases: found by looking, by nobody else.

Until 2.8 the autocast and the context for quantized parameters had other names; ``Float8CurrentScaling``
came with 2.2.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import transformer_engine.common.recipe as te_recipe
import transformer_engine.pytorch as te

from harness.backends import te_version
from harness.errors import ReleaseLacks

Context = AbstractContextManager[Any]


def autocast(enabled: bool, recipe: Any) -> Context:
    """Return TE's FP8 autocast."""
    context: Context
    if hasattr(te, "autocast"):
        context = te.autocast(enabled=enabled, recipe=recipe)
    else:
        context = te.fp8_autocast(enabled=enabled, fp8_recipe=recipe)
    return context


def quantized_init(recipe: Any) -> Context:
    """Return TE's context in which modules are made with quantized parameters."""
    make = getattr(te, "quantized_model_init", None) or te.fp8_model_init
    context: Context = make(enabled=True, recipe=recipe)
    return context


def recipe_class(name: str) -> Any:
    """Return the recipe of this name.

    Raises:
        ReleaseLacks: the installed release has none.
    """
    if not hasattr(te_recipe, name):
        raise ReleaseLacks(te_version(), f"the recipe {name}")
    return getattr(te_recipe, name)
