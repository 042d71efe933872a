"""Counters, maps and dumps from torch's own CUDA allocator, torch 2.1 and newer, without changing anything in it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from vramscope.agent.source import DeviceDescription

_NATIVE = "native"
_NO_HISTORY = (
    "history recording is off in this job, so blocks have no stacks; to record them: "
    'torch.cuda.memory._record_memory_history("state")'
)


class TorchSource:
    """Implements :class:`vramscope.agent.source.Source` over ``torch`` (a module with CUDA compiled in).

    Nothing here initialises CUDA or makes a context: every method but ``notes`` and ``ready`` is called only once
    ``ready`` is true. How maps are taken follows what this torch offers, not its version.
    """

    simulated = False

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self.torch_version = str(torch.__version__)
        self._backend = str(torch.cuda.get_allocator_backend())
        parameters = inspect.signature(torch.cuda.memory.memory_snapshot).parameters
        self._traces_can_stay = "include_traces" in parameters
        self.map_way = "history-free" if self._traces_can_stay else "full snapshot"
        self._described: dict[int, DeviceDescription] = {}

    def notes(self) -> Sequence[str]:
        found = []
        if self._backend != _NATIVE:
            found.append(
                f"the {self._backend} allocator gives torch no statistics and no map; "
                "only the device's own memory is shown"
            )
        elif not self._traces_can_stay:
            found.append(
                f"torch {self.torch_version} has no snapshot without the history: while memory history is recorded, each "
                "map also copies it (no extra cost while it is not)"
            )
        if not self.ready():
            found.append("this job has not used CUDA yet; its memory is shown from its first use on")
        return found

    def ready(self) -> bool:
        return bool(self._torch.cuda.is_initialized())

    def devices(self) -> Sequence[DeviceDescription]:
        """Return the devices that the allocator has ever held memory on, as far as this was asked.

        With cudaMallocAsync, whose statistics are empty, those on which this process has a context.
        """
        for device in range(self._torch.cuda.device_count()):
            if device not in self._described and self._in_use(device):
                self._described[device] = self._describe(device)
        return [self._described[device] for device in sorted(self._described)]

    def _in_use(self, device: int) -> bool:
        if self._backend != _NATIVE:
            return bool(self._torch._C._cuda_hasPrimaryContext(device))
        return bool(self.memory_stats(device)["reserved_bytes"]["all"]["current"])

    def _describe(self, device: int) -> DeviceDescription:
        properties = self._torch.cuda.get_device_properties(device)
        return DeviceDescription(
            device, properties.name, self._uuid(device, properties), properties.total_memory, self._backend
        )

    def _uuid(self, device: int, properties: Any) -> str | None:
        """Return the UUID as NVML spells it, or None.

        A MIG slice is known by what CUDA_VISIBLE_DEVICES names. From torch 2.4 on the properties have the UUID; before,
        torch's own NVML helper is asked, which maps the visible devices and needs no context.
        """
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if device < len(visible) and visible[device].strip().startswith("MIG-"):
            return visible[device].strip()
        if hasattr(properties, "uuid"):
            return f"GPU-{properties.uuid}"
        try:
            uuids = self._torch.cuda._raw_device_uuid_nvml()
            return str(uuids[self._torch.cuda._get_nvml_device_index(device)]) if uuids else None
        except (AttributeError, IndexError, RuntimeError, OSError):
            return None

    def memory_stats(self, device: int) -> Mapping[str, Any]:
        """Return the allocator's nested statistics; empty with cudaMallocAsync, so that nothing reads as 0."""
        if self._backend != _NATIVE:
            return {}
        found: Mapping[str, Any] = self._torch._C._cuda_memoryStats(device)
        return found

    def device_memory(self, device: int) -> tuple[int, int] | None:
        """Return (free, total) bytes of cudaMemGetInfo, or None where it fails. Only for the agent's own thread.

        cudaMemGetInfo works on the thread's current device, and leaving a device makes a context on the one before where
        there was none: so this thread moves to ``device``, where the job has memory, and stays.
        """
        try:
            self._torch.cuda.set_device(device)
            free, total = self._torch.cuda.mem_get_info(device)
        except RuntimeError:
            return None
        return int(free), int(total)

    def segments(self) -> Sequence[Mapping[str, Any]]:
        if self._backend != _NATIVE:
            return []
        snapshot = self._torch.cuda.memory.memory_snapshot
        found: Sequence[Mapping[str, Any]] = snapshot(include_traces=False) if self._traces_can_stay else snapshot()
        return found

    def tensor_span(self, tensor: Any) -> tuple[int, int, int] | None:
        """Return (device, address, bytes) of the storage; of the local shard for a DTensor; None where it has none."""
        tensor = getattr(tensor, "_local_tensor", tensor)
        if not tensor.is_cuda:
            return None
        try:
            storage = tensor.untyped_storage()
            address, size_bytes = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # fake and wrapper tensors have no storage
            return None
        return (tensor.device.index, address, size_bytes) if address and size_bytes else None

    def stack(self, device: int, address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        if self._backend != _NATIVE:
            return [], f"the {self._backend} allocator records no stacks"
        for segment in self.segments():
            if segment["device"] == device and 0 <= address - segment["address"] < segment["total_size"]:
                return self._frames(segment, address)
        return [], "this block's segment is no longer there"

    def _frames(self, segment: Mapping[str, Any], address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        for block in segment["blocks"]:
            if not 0 <= address - block["address"] < block["size"]:
                continue
            if block["state"] == "inactive":
                return [], "this block is free now"
            frames = [(str(f["filename"]), int(f["line"]), str(f["name"])) for f in block.get("frames", ())]
            if frames:
                return frames, None
        if self._torch._C._cuda_isHistoryEnabled():
            return [], "this block was allocated before history was recorded, or without a Python stack"
        return [], _NO_HISTORY

    def dump(self, path: str) -> None:
        self._torch.cuda.memory._dump_snapshot(path)
