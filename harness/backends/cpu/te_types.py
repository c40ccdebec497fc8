"""The classes of Transformer Engine that the kernels receive and build.

Looked up when a kernel is first called: the extension is loaded before TE's own modules are.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any, NamedTuple

from harness.backends.cpu.unwritten import UnwrittenKernel, refuse_unless


class TeTypes(NamedTuple):
    """The tensor classes, the quantizer classes, and whether a storage carries its nominal type."""

    tensor: Any
    storage: Any
    delayed: Any
    current: Any
    storage_has_fake_dtype: bool


@functools.cache
def te_types() -> TeTypes:
    """Return TE's classes for FP8 with one scale per tensor."""
    tensors = importlib.import_module("transformer_engine.pytorch.tensor.float8_tensor")
    storage = _storage()
    return TeTypes(
        tensor=tensors.Float8Tensor,
        storage=storage,
        delayed=tensors.Float8Quantizer,
        # From 2.2 on.
        current=getattr(tensors, "Float8CurrentScalingQuantizer", None),
        # From 2.14 on.
        storage_has_fake_dtype="fake_dtype" in inspect.signature(storage.__new__).parameters,
    )


def _storage() -> Any:
    """Return the class that holds the data of an FP8 tensor; its module and its name are from 2.9 on."""
    try:
        module = importlib.import_module("transformer_engine.pytorch.tensor.storage.float8_tensor_storage")
    except ModuleNotFoundError:
        module = importlib.import_module("transformer_engine.pytorch.tensor._internal.float8_tensor_base")
        return module.Float8TensorBase
    return module.Float8TensorStorage


def is_delayed(quantizer: Any) -> bool:
    """Return whether ``quantizer`` scales with history; False when it scales by the tensor itself.

    Raises UnwrittenKernel for any other kind, and for a reduction over several processes.
    """
    types = te_types()
    if type(quantizer) is types.delayed:
        return True
    if type(quantizer) is not types.current:
        raise UnwrittenKernel(f"quantization by {type(quantizer).__name__} is not emulated; run on a GPU")
    refuse_unless(not quantizer.with_amax_reduction, "current scaling", "amax reduction over processes")
    # An option of releases up to 2.19 that TE itself never sets.
    given = getattr(quantizer, "use_existing_amax", False)
    refuse_unless(not given, "current scaling", "an amax found by somebody else")
    return False


def is_fp8(value: Any) -> bool:
    """Return whether ``value`` is an FP8 tensor with one scale."""
    return isinstance(value, te_types().storage)
