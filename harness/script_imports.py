"""Scripts: what stands at their head."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_IMPORTS: Final[dict[str, str]] = {
    "contextlib.": "import contextlib",
    "copy.": "import copy",
    "sys.": "import sys",
}
_FROM: Final[dict[str, tuple[str, ...]]] = {
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper": ("CheckpointImpl", "checkpoint_wrapper"),
    "torch.utils.checkpoint": ("noop_context_fn",),
    "transformer_engine.common.recipe": ("DelayedScaling", "Float8CurrentScaling", "Format"),
    "transformer_engine.pytorch.distributed": ("activation_recompute_forward",),
    "transformer_engine.pytorch.quantization": ("FP8GlobalStateManager",),
}


def head(environment: Mapping[str, str], body: Sequence[str]) -> list[str]:
    """Return the imports that lines need, and before those of TE what it is to read of the environment."""
    text = "\n".join(body)
    given = ", ".join(f'{name}="{value}"' for name, value in environment.items())
    setting = [f"os.environ.update({given})"] if given else []
    standard = [line for name, line in _IMPORTS.items() if re.search(rf"\b{re.escape(name)}", text)]
    if setting:
        standard = sorted([*standard, "import os"])
    theirs = ["import torch", "import transformer_engine.pytorch as te"]
    if "torch.utils.checkpoint.checkpoint" in text:
        theirs.append("import torch.utils.checkpoint")
    for module, names in _FROM.items():
        used = [name for name in names if re.search(rf"\b{name}\b", text)]
        theirs += [f"from {module} import {', '.join(used)}"] if used else []
    theirs.sort(key=lambda line: (line.startswith("from"), line))
    return [line for part in (standard, setting, theirs) if part for line in (*part, "")]
