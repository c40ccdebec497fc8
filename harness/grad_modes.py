"""Grad modes: torch's context for each name in a case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch

from harness.api import Context

GRAD_MODES: dict[str, Callable[[], Context]] = {
    "null": nullcontext,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "set_grad_enabled_false": partial(torch.set_grad_enabled, False),
    "set_grad_enabled_true": partial(torch.set_grad_enabled, True),
    "inference_mode": torch.inference_mode,
}
