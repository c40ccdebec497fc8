"""Use traits: where a case uses a module more than once, or a copy of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness import case as c
from harness.graph_traits import at_any_forward, enclosing, recipe_in, with_parents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Above = tuple[c.Node, ...]


def _uses(case: c.Case) -> Iterator[list[Above]]:
    """Yield for each module that is used more than once what stands above each of its uses."""
    uses: list[list[Above]] = []
    for node, above in with_parents(case.graph):
        if isinstance(node, c.Module):
            uses.append([above])
        elif isinstance(node, c.Reuse):
            uses[node.module].append(above)
    return (places for places in uses if len(places) > 1)


def _is_used_in(case: c.Case, regions: int, *, outside: bool) -> bool:
    """Tell whether a module is used again in so many regions, and outside them."""
    return any(
        len({id(enclosing(above)[-1]) for above in places if enclosing(above)}) == regions
        and any(not enclosing(above) for above in places) == outside
        for places in _uses(case)
    )


def _is_used_twice_in(case: c.Case, *, reentrant: bool) -> bool:
    """Tell whether a region of this kind uses a module more than once."""
    inside = ([enclosing(above)[-1] for above in places if enclosing(above)] for places in _uses(case))
    return any(
        sum(other is region for other in regions) > 1 and region.use_reentrant == reentrant
        for regions in inside
        for region in regions
    )


def _is_beside_its_copy(case: c.Case, *, in_regions: bool) -> bool:
    """Tell whether a module and its deep copy both stand in regions, or do not."""
    if not any(isinstance(step, c.DeepCopy) and step.beside for step in case.schedule):
        return False
    checkpointed: list[bool] = []
    found = []
    for node, above in with_parents(case.graph):
        if isinstance(node, c.Module):
            checkpointed.append(bool(enclosing(above)))
        elif isinstance(node, c.Reuse):
            checkpointed[node.module] |= bool(enclosing(above))
        elif isinstance(node, c.Twin):
            found.append((node.module, bool(enclosing(above))))
    return any((checkpointed[source] and inside) == in_regions for source, inside in found)


def _is_used_in_inference_mode_and_not(case: c.Case) -> bool:
    return any(
        len(
            {
                any(isinstance(node, c.GradMode) and node.mode == "inference_mode" for node in above)
                for above in places
            }
        )
        > 1
        for places in _uses(case)
    )


def _is_used_with_several_recipes(case: c.Case) -> bool:
    """Tell whether a module is used with more than one recipe; FP8 off is one of them."""
    return any(len({recipe_in(case, above) for above in places}) > 1 for places in _uses(case))


TRAITS: Final[dict[str, Callable[[c.Case], bool]]] = {
    "module used twice in a reentrant region": lambda case: _is_used_twice_in(case, reentrant=True),
    "module used twice in a non-reentrant region": lambda case: _is_used_twice_in(case, reentrant=False),
    "module used in two regions": lambda case: _is_used_in(case, regions=2, outside=False),
    "module used in a region and outside": lambda case: _is_used_in(case, regions=1, outside=True),
    "module used twice outside regions": lambda case: _is_used_in(case, regions=0, outside=True),
    "module and its deep copy in regions": lambda case: _is_beside_its_copy(case, in_regions=True),
    "deep copy beside its module": lambda case: _is_beside_its_copy(case, in_regions=False),
    "module used in inference mode and outside": _is_used_in_inference_mode_and_not,
    "module used with several recipes": at_any_forward(_is_used_with_several_recipes),
}
"""The traits, each with what tells whether a case has it."""
