"""Steps: what happens to a case's model, in order, as plain data."""

from __future__ import annotations

from typing import Literal, TypeAlias

from harness.plain_data import Data
from harness.recipe import Recipe


class SetMode(Data, frozen=True, tag="SetMode"):
    """``module.train(training)`` on the module with this number (in the order of ``modules``)."""

    module: int
    training: bool


class Forward(Data, frozen=True, tag="Forward"):
    """Gradients cleared, then a forward on a fresh normal input of this standard deviation.

    ``first_microbatch`` is what TE's modules are given as ``is_first_microbatch``. In a forward that
    ``fails`` the callable of the region with that number raises when it is done; the run goes on without a
    graph.
    """

    magnitude: float = 1.0
    first_microbatch: bool | None = None
    fails: int | None = None


class Backward(Data, frozen=True, tag="Backward"):
    """The backward of pending forwards, from a fresh normal gradient of this deviation.

    ``which`` counts the pending forwards from the oldest, 0; ``losses`` is how many of them, one after
    another, are added up to one loss. ``way`` is the function of ``torch.autograd`` that is called. With
    ``retain`` the graph is kept, and the forwards stay pending. In a backward that ``fails`` the region with
    that number raises: its callable in the recompute, or, directly, at the gradient of its result.
    """

    magnitude: float = 1.0
    which: int = 0
    losses: int = 1
    way: Literal["backward", "grad"] = "backward"
    retain: bool = False
    fails: int | None = None


class Abandon(Data, frozen=True, tag="Abandon"):
    """A pending forward's output is dropped, and with it its graph: its backward never comes."""

    which: int = 0


class Evaluate(Data, frozen=True, tag="Evaluate"):
    """A forward of the whole graph with gradients off, which no backward follows."""

    magnitude: float = 1.0
    mode: Literal["no_grad", "inference_mode"] = "no_grad"


class OptimizerStep(Data, frozen=True, tag="OptimizerStep"):
    """One step of plain SGD on the parameters that are not frozen."""


class OpenAutocast(Data, frozen=True, tag="OpenAutocast"):
    """``te.autocast`` is entered with the recipe of now, for the steps up to its ``CloseAutocast``."""


class CloseAutocast(Data, frozen=True, tag="CloseAutocast"):
    """The autocast that was opened last is left."""


class SetRecipe(Data, frozen=True, tag="SetRecipe"):
    """Autocasts entered from here on have this recipe, unless they have one of their own."""

    recipe: Recipe


class SaveState(Data, frozen=True, tag="SaveState"):
    """``state_dict`` is taken, and copied as a file would be."""


class LoadState(Data, frozen=True, tag="LoadState"):
    """``load_state_dict`` of what was saved last; where nothing was, of the state of now.

    With ``extra`` it holds TE's extra state alone, which may be loaded while a graph is pending.
    """

    extra: bool = False


class DeepCopy(Data, frozen=True, tag="DeepCopy"):
    """Every module is replaced by its ``copy.deepcopy``; or, ``beside`` them, the twins are made anew."""

    beside: bool = False


Step: TypeAlias = (
    SetMode | Forward | Backward | Abandon | Evaluate | OptimizerStep | OpenAutocast | CloseAutocast
    | SetRecipe | SaveState | LoadState | DeepCopy
)  # fmt: skip
