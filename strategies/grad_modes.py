"""Grad modes: where gradients are off, on again, or cut, around a region and inside it."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Final, Literal, TypeAlias, get_args

from hypothesis import strategies as st

from harness import case as c
from harness.graph_traits import enables_around_a_region
from harness.nodes import GRADIENTS_CUT, GRADIENTS_ON

EvaluationMode: TypeAlias = Literal["no_grad", "inference_mode"]

OFF: Final[tuple[c.GradModeName, ...]] = ("no_grad", "set_grad_enabled_false")
"""Modes under which gradients are off until something inside switches them on again."""

ON: Final = GRADIENTS_ON

CUTS: Final = GRADIENTS_CUT
"""Modes under which a part of the graph yields no gradient. Inference mode is a cut and nothing else:
``enable_grad`` inside it does not bring gradients back, and a module that saves tensors there fails
("Inference tensors cannot be saved for backward"), with and without a checkpoint."""

_NAMES: Final[tuple[c.ContextName, ...]] = get_args(c.ContextName)
_KEEPING: Final[tuple[c.ContextName, ...]] = ("null", "enable_grad")


def cut(mode: c.GradModeName, body: c.Node) -> c.Node:
    """Cut the gradients of a body, inside a residual.

    Rule b: what follows a cut must still receive a tensor with a gradient, or a reentrant region there
    gives none (PyTorch's own restriction), so the way around the body stays open.
    """
    return c.Residual(c.GradMode(body, mode))


@cache
def contexts_with_gradients(use_reentrant: bool) -> st.SearchStrategy[c.Contexts]:
    """Draw the contexts of a region that is entered with gradients on. Shrinks towards two null contexts.

    Rule d: the recompute needs gradients. A forward under ``no_grad`` is what a reentrant checkpoint does
    anyway; in a non-reentrant one nothing would be saved, no recompute would come, and the snapshots
    that the forward pushed would stay.
    """
    forward = _NAMES if use_reentrant else _KEEPING
    return st.sampled_from([c.Contexts(*pair) for pair in product(forward, _KEEPING)])


@cache
def contexts_without_gradients(inference: bool) -> st.SearchStrategy[c.Contexts]:
    """Draw the contexts of a region that stands under a cut. Shrinks towards two null contexts.

    Such a region is called directly and never recomputed, so the second context does not matter. Under
    inference mode the first must not enable gradients, see ``CUTS``.
    """
    forward = ("null", "no_grad") if inference else _NAMES
    return st.sampled_from([c.Contexts(*pair) for pair in product(forward, _NAMES)])


def contexts_enabling() -> st.SearchStrategy[c.Contexts]:
    """Draw contexts that switch gradients on for a region entered with gradients off (rule c).

    Shrinks towards a null recompute context.
    """
    return _ENABLING


_ENABLING: Final = st.sampled_from([c.Contexts("enable_grad", recompute) for recompute in _NAMES])


def enables_gradients(node: c.Node) -> bool:
    """Tell whether anything in this part of the graph switches gradients on."""
    return any(
        (isinstance(below, c.GradMode) and below.mode in ON)
        or (
            isinstance(below, c.Region)
            and below.contexts is not None
            and below.contexts.forward == "enable_grad"
        )
        for below in c.walk(node)
    )


def evaluations_of(graph: c.Node) -> tuple[EvaluationMode, ...]:
    """Return the modes in which a whole graph may be evaluated, so that no backward need follow.

    Rule l: an evaluation must not meet a region with gradients on, since that region would push
    snapshots for a recompute that never comes; so a graph that enables gradients around a region is not
    evaluated. One that enables them elsewhere is not evaluated in inference mode, see ``CUTS``.
    """
    if enables_around_a_region(graph):
        return ()
    if not enables_gradients(graph):
        return ("no_grad", "inference_mode")
    return ("no_grad",)
