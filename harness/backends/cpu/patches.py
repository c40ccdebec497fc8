"""Every change that the CPU backend makes to torch, process-wide, with its reason.

Transformer Engine's Python asks torch for a GPU in many small ways. :func:`patch_torch` answers each of
them; nothing else of this project changes torch. Found by taking them away one by one.
"""

# Some of what TE calls is private.
# ruff: noqa: SLF001

from __future__ import annotations

import functools
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from harness.backends.cpu.generators import device_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CAPABILITY = (9, 0)
"""The compute capability we claim: Hopper, whose FP8 GEMM reads both operands along the summed dimension,
so that a tensor used column-wise is stored transposed."""

_PROPERTIES = SimpleNamespace(
    name="emulated sm90", major=CAPABILITY[0], minor=CAPABILITY[1], multi_processor_count=132
)

_FACTORIES = ("arange", "empty", "empty_like", "eye", "ones", "tensor", "zeros")


class NoGraph:
    """Stands for ``torch.cuda.CUDAGraph``: none can be made."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("CUDA graphs do not exist on the CPU backend")

    def register_generator_state(self, _generator: torch.Generator) -> None:
        """Exist: by this name ``graph_safe_rng_available()`` tells that generators can share states."""


def patch_torch() -> None:
    """Make torch answer as on a machine with one Hopper GPU, whose memory is the CPU's."""
    _claim_a_gpu()
    _give_the_gpu_a_generator()
    _let_checkpoints_rewind_it()
    _keep_tensors_on_the_cpu()
    _cast_on_the_cpu()


@contextmanager
def compiling_nothing() -> Iterator[None]:
    """Let ``torch.compile`` return functions as they are.

    ``attention.py`` of 2.1 compiles, whatever ``NVTE_TORCH_COMPILE`` says, when it is imported.
    """
    of_torch: Any = torch
    compile_ = torch.compile
    of_torch.compile = lambda function: function
    try:
        yield
    finally:
        of_torch.compile = compile_


def _claim_a_gpu() -> None:
    cuda: Any = torch.cuda
    # TransformerEngineBaseModule.__init__ and torch.autocast("cuda") refuse to work without a GPU.
    cuda.is_available = lambda: True
    # torch.cuda.random imported both functions by name.
    for module in (cuda, cuda.random):
        module.device_count = lambda: 1
        # Used as a device argument, as a cache key, and to index default_generators.
        module.current_device = lambda: 0
    # FP8 support, the TN-only GEMM of Hopper, the size of the cuBLAS workspace.
    cuda.get_device_properties = lambda _device=None: _PROPERTIES
    cuda.get_device_capability = lambda _device=None: CAPABILITY
    cuda.get_device_name = lambda _device=None: _PROPERTIES.name
    # torch.autocast("cuda", dtype=bfloat16) asks the driver otherwise.
    cuda.is_bf16_supported = lambda *_args: True
    # FP8GlobalStateManager.fp8_graph_capturing() is called on every forward.
    cuda.is_current_stream_capturing = lambda: False
    # Whether block scaling is supported is read off the toolkit's version, which the CPU wheel has not.
    version: Any = torch.version
    version.cuda = version.cuda or "12.9"
    # Until 2.9 a module's forward makes the device of its parameters the current one.
    cuda.device = lambda _device: nullcontext()
    # Until 2.9 it names its forward to the profiler, too.
    cuda.nvtx.range_push = lambda _name: 0
    cuda.nvtx.range_pop = lambda: 0
    # get_extra_state() and set_extra_state() wait for the device.
    cuda.synchronize = lambda _device=None: None
    # What reads, sets or seeds a generator would initialise CUDA first, or wait until that is done.
    cuda._initialized = True


def _give_the_gpu_a_generator() -> None:
    cuda: Any = torch.cuda
    # Dropout draws from torch.default_generator here, so that one holds the GPU's state.
    cuda.default_generators = (device_generator(),)
    cuda.CUDAGraph = NoGraph
    # What torch.get_rng_state() and its like reach is the CPU's generator, from which a model on a GPU draws
    # nothing. It must not be the GPU's: te.checkpoint rewinds the CPU's always, the GPU's not with a tracker.
    random: Any = torch.random
    random.default_generator = torch.Generator()
    # What a script draws for itself, without naming a device, is drawn by that one.
    for name in ("rand", "randn"):
        setattr(torch, name, _drawn_on_the_cpu(getattr(torch, name)))


def _let_checkpoints_rewind_it() -> None:
    # torch's checkpoint, to which te.checkpoint leaves what has no TE module, rewinds the generators of the
    # devices that it finds the arguments on.
    checkpoint: Any = torch.utils.checkpoint
    checkpoint._infer_device_type = lambda *_args: "cuda"
    checkpoint.get_device_states = lambda *_args: ([0], [torch.cuda.get_rng_state()])
    checkpoint.set_device_states = lambda _devices, states, **_kwargs: torch.cuda.set_rng_state(*states)


def _keep_tensors_on_the_cpu() -> None:
    tensor: Any = torch.Tensor
    # Parameters, masks and buffers are made with device="cuda", or with current_device() as the device.
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    # QuantizedTensor.__new__ names the current device.
    tensor._make_wrapper_subclass = staticmethod(_on_cpu(tensor._make_wrapper_subclass))
    tensor.to = _moving_nowhere(tensor.to)
    tensor.cuda = lambda self, *_args, **_kwargs: self
    # prepare_forward() and the attention refuse tensors that are not on a GPU.
    tensor.is_cuda = True
    # set_extra_state() maps the saved FP8 state to "cuda".
    torch.load = _loading_to_cpu(torch.load)


def _cast_on_the_cpu() -> None:
    # torch's operations run on the CPU and ask for its autocast; TE, and who writes for a GPU, for CUDA's.
    autocast: Any = torch.autocast
    enter, leave = autocast.__enter__, autocast.__exit__

    def enter_both(self: Any) -> Any:
        if self.device == "cuda":
            self.on_cpu = torch.autocast("cpu", self.fast_dtype, self._enabled, self._cache_enabled)
            self.on_cpu.__enter__()
        return enter(self)

    def leave_both(self: Any, *error: Any) -> Any:
        left = leave(self, *error)
        if self.device == "cuda":
            self.on_cpu.__exit__(*error)
        return left

    autocast.__enter__, autocast.__exit__ = enter_both, leave_both


def _cpu_for(device: Any) -> Any:
    """Return the device to use for the one named: the CPU for any GPU, by name, object or index."""
    if isinstance(device, int):
        return "cpu"
    if isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda":
        return "cpu"
    return device


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = _cpu_for(kwargs["device"])
        return factory(*args, **kwargs)

    return make


def _drawn_on_the_cpu(draw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is None and kwargs.get("generator") is None:
            random: Any = torch.random
            kwargs["generator"] = random.default_generator
        return draw(*args, **kwargs)

    return _on_cpu(drawn)


def _moving_nowhere(to: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(to)
    def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = _cpu_for(kwargs["device"])
        if args and isinstance(args[0], (int, str, torch.device)):
            args = (_cpu_for(args[0]), *args[1:])
        return to(self, *args, **kwargs)

    return move


def _loading_to_cpu(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_to_cpu(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("map_location") is not None:
            kwargs["map_location"] = _cpu_for(kwargs["map_location"])
        return load(*args, **kwargs)

    return load_to_cpu
