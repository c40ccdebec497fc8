"""The golden files: one ``.npz`` per family, one array of bits per output tensor, no pickles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from tests.backends.golden_case import Outputs

FOLDER = Path(__file__).with_name("golden")
_ERROR = "error"
_BITS: dict[int, Any] = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


def save(path: Path, results: dict[str, Outputs | str]) -> None:
    """Write each case's outputs, or the error it ended with, as "case|output|type" arrays."""
    arrays: dict[str, Any] = {}
    for name, outputs in results.items():
        if isinstance(outputs, str):
            arrays[f"{name}|{_ERROR}|"] = np.array(outputs)
            continue
        for output, tensor in outputs.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            bits = tensor.detach().cpu().contiguous().view(_BITS[tensor.element_size()])
            arrays[f"{name}|{output}|{dtype}"] = bits.numpy()
    np.savez_compressed(path, **arrays)


def load(path: Path) -> dict[str, Outputs | str]:
    """Read what :func:`save` wrote."""
    results: dict[str, Outputs | str] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            name, output, dtype = key.split("|")
            if output == _ERROR:
                results[name] = str(arrays[key])
                continue
            outputs = results.setdefault(name, {})
            assert isinstance(outputs, dict)
            outputs[output] = torch.from_numpy(arrays[key]).view(getattr(torch, dtype))
    return results
