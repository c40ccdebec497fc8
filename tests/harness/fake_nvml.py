"""NVML on machines that one can make up, in place of the module ``pynvml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

GIB = 2**30


class NvmlError(Exception):
    """Any error of NVML."""


class NotSupported(NvmlError):
    """This device has no such thing."""


class NotFound(NvmlError):
    """There is no such device."""


@dataclass(frozen=True)
class Device:
    """A GPU or an instance of one. ``mig`` is None where there is no such mode."""

    uuid: str
    product: str = "NVIDIA H200"
    memory: int | None = 140 * GIB
    free: int = 138 * GIB
    capability: tuple[int, int] = (9, 0)
    mig: tuple[Device | None, ...] | None = None
    ids: tuple[int, int] = (0, 0)
    lost: bool = False


@dataclass
class FakeNvml:
    """The functions of ``pynvml`` that the harness calls."""

    devices: list[Device]
    broken: str = ""
    """Why NVML does not start."""
    open: int = field(default=0)
    """How many times it was started and not shut down."""

    NVMLError = NvmlError
    NVMLError_NotSupported = NotSupported
    NVMLError_NotFound = NotFound

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise NvmlError(self.broken)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        assert self.open
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        if self.devices[index].lost:
            raise NvmlError("GPU is lost")
        return self.devices[index]

    def nvmlDeviceGetUUID(self, device: Device) -> str:  # noqa: N802
        return device.uuid

    def nvmlDeviceGetName(self, device: Device) -> str:  # noqa: N802
        return device.product

    def nvmlDeviceGetCudaComputeCapability(self, device: Device) -> tuple[int, int]:  # noqa: N802
        return device.capability

    def nvmlDeviceGetMemoryInfo(self, device: Device) -> SimpleNamespace:  # noqa: N802
        if device.memory is None:
            raise NotSupported
        return SimpleNamespace(total=device.memory, free=device.free)

    def nvmlDeviceGetMigMode(self, device: Device) -> list[int]:  # noqa: N802
        if device.mig is None:
            raise NotSupported
        return [int(bool(device.mig)), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Device) -> int:  # noqa: N802
        return len(device.mig or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, index: int) -> Device:  # noqa: N802
        instance = (device.mig or ())[index]
        if instance is None:
            raise NotFound
        return instance

    def nvmlDeviceGetGpuInstanceId(self, device: Device) -> int:  # noqa: N802
        return device.ids[0]

    def nvmlDeviceGetComputeInstanceId(self, device: Device) -> int:  # noqa: N802
        return device.ids[1]
