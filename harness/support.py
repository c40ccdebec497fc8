"""What the installed Transformer Engine can run of a case, found by trying.

A release lacks what it has no name for (``Float8CurrentScaling`` before 2.2), and what it refuses with a
``NotImplementedError`` when it first runs: activations of ``LayerNormMLP``, current scaling in
``GroupedLinear`` before 2.3. Both would befall the direct run too, so such a case tells nothing.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import torch

from harness import case as c
from harness.api import autocast
from harness.backends import te_version
from harness.build import make_recipe
from harness.errors import ReleaseLacks
from harness.leaves import make_leaf

if TYPE_CHECKING:
    from harness.probe import Probe

Need: TypeAlias = tuple[type[c.Leaf], tuple[tuple[str, object], ...], type[c.Recipe]]
"""What is tried once: a kind of leaf, with options that not all releases have, under a kind of recipe."""

_OPTIONS = ("activation", "recompute")


class Support:
    """Says whether the installed release can run a case; remembers what was tried."""

    def __init__(self, device: torch.device, probe: Probe) -> None:
        self._device = device
        self._probe = probe
        self._tried: dict[Need, ReleaseLacks | None] = {}

    def check(self, case: c.Case) -> None:
        """Raise ReleaseLacks for the first thing that the case needs and the release lacks.

        A trial draws random numbers and leaves FP8 state: check a case before a run of it begins.
        """
        for leaf in c.modules(case):
            options = tuple((name, getattr(leaf, name)) for name in _OPTIONS if hasattr(leaf, name))
            need = (type(leaf), options, type(case.recipe))
            if need not in self._tried:
                self._tried[need] = self._try(need)
            lack = self._tried[need]
            if lack is not None:
                raise lack

    def _try(self, need: Need) -> ReleaseLacks | None:
        kind, options, recipe = need
        leaf = msgspec.convert(dict(options), kind)
        self._probe.reset()
        try:
            self._run(c.Case(graph=leaf, schedule=(), recipe=recipe()), leaf)
        except ReleaseLacks as error:
            return error
        except NotImplementedError:
            activation = getattr(leaf, "activation", None)
            option = "" if activation is None else f" with activation {activation}"
            return ReleaseLacks(te_version(), f"{kind.__name__}{option} under {recipe.__name__}")
        except Exception:
            # Not for lack of something: what goes wrong here goes wrong in the runs, where it is judged.
            return None
        finally:
            self._probe.reset()
        return None

    def _run(self, case: c.Case, leaf: c.Leaf) -> None:
        made = make_recipe(case.recipe)
        module = make_leaf(leaf, case, self._device, None, recompute=True)
        with warnings.catch_warnings(), autocast(made is not None, made):
            # TE's and torch's advice on how a case is written.
            warnings.simplefilter("ignore")
            module(torch.zeros(case.rows // 2, 2, case.width, device=self._device))
