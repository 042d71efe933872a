"""A pynvml in memory: a tree of devices, each with its readings; a reading that is an exception is raised."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

GIB = 1 << 30


class NVMLError(Exception):
    """As pynvml's: the text names the error."""


def not_supported() -> NVMLError:
    return NVMLError("Not Supported")


def device(uuid: str = "GPU-1", **readings: Any) -> dict[str, Any]:
    """Return a healthy GPU; ``readings`` replace some of its own. MIG devices are ``migs``, by index."""
    return {
        "UUID": uuid,
        "Name": "NVIDIA H100",
        "MemoryInfo": SimpleNamespace(total=80 * GIB, used=30 * GIB, free=50 * GIB),
        "UtilizationRates": SimpleNamespace(gpu=37, memory=5),
        "Temperature": 55,
        "PowerUsage": 250_000,
        "ComputeRunningProcesses": [
            SimpleNamespace(pid=10, usedGpuMemory=GIB),
            SimpleNamespace(pid=11, usedGpuMemory=None),
        ],
        "MigMode": not_supported(),
        "migs": {},
        **readings,
    }


class FakeNvml:
    """Has the functions that the collector calls; ``memory_v2`` tells whether the driver knows that version."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    nvmlMemory_v2 = 2

    def __init__(self, *devices: Any, memory_v2: bool = True) -> None:
        self.devices = devices
        self.memory_v2 = memory_v2
        self.memory_versions: list[int | None] = []

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return _value(self.devices[index])

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        if version is not None and not self.memory_v2:
            raise NVMLError("Function Not Found")
        self.memory_versions.append(version)
        return _value(handle["MemoryInfo"])

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> Any:
        return _value(handle["Temperature"])

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        if index not in handle["migs"]:
            raise NVMLError("Not Found")
        return handle["migs"][index]

    def __getattr__(self, name: str) -> Any:
        """Return the function for a plain reading, as nvmlDeviceGetUUID."""
        reading = name.removeprefix("nvmlDeviceGet")
        if reading not in device():
            raise AttributeError(name)
        return lambda handle: _value(handle[reading])


def _value(found: Any) -> Any:
    if isinstance(found, Exception):
        raise found
    return found
