"""Recipes: how Transformer Engine is to scale what it casts to FP8, as plain data."""

from __future__ import annotations

from typing import Literal, TypeAlias

from harness.plain_data import Data


class DelayedScaling(Data, frozen=True, kw_only=True, tag="DelayedScaling"):
    """``transformer_engine.common.recipe.DelayedScaling``."""

    format: Literal["HYBRID", "E4M3"] = "HYBRID"
    history: int = 4
    algorithm: Literal["max", "most_recent"] = "max"
    margin: int = 0


class CurrentScaling(Data, frozen=True, kw_only=True, tag="CurrentScaling"):
    """``transformer_engine.common.recipe.Float8CurrentScaling``."""

    format: Literal["HYBRID", "E4M3"] = "HYBRID"


class HighPrecision(Data, frozen=True, tag="HighPrecision"):
    """FP8 off: the control, in which nothing may be pushed at all."""


Recipe: TypeAlias = DelayedScaling | CurrentScaling | HighPrecision
