"""What the agent samples: the interface that torch's CUDA allocator and the simulated GPU both fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class DeviceDescription(NamedTuple):
    """One device as ``hello`` announces it; None where it cannot be told. ``backend`` is the allocator's name."""

    device: int
    name: str
    uuid: str | None
    total_bytes: int | None
    backend: str


class Source(Protocol):
    """Where counters and maps come from. Methods may raise; the agent's thread counts that and goes on.

    ``map_way`` names how maps are taken; ``notes`` are lines for the page about what cannot be told.
    """

    simulated: bool
    torch_version: str
    map_way: str

    def notes(self) -> Sequence[str]: ...

    def ready(self) -> bool:
        """Return whether there is a device to sample now, without initialising CUDA."""
        ...

    def devices(self) -> Sequence[DeviceDescription]:
        """Return the devices on which this process has allocator state, cheapest way, without creating a context."""
        ...

    def memory_stats(self, device: int) -> Mapping[str, Any]:
        """Return the nested statistics in the shape of ``torch._C._cuda_memoryStats(device)``."""
        ...

    def device_memory(self, device: int) -> tuple[int, int] | None:
        """Return (free, total) bytes as the driver tells them (cudaMemGetInfo), or None."""
        ...

    def segments(self) -> Sequence[Mapping[str, Any]]:
        """Return the segments of all devices in PyTorch's own form (no traces needed; frames may be left out)."""
        ...

    def tensor_span(self, tensor: Any) -> tuple[int, int, int] | None:
        """Return (device, address, bytes) of a tensor's storage on the sampled devices, or None (another device)."""
        ...

    def stack(self, device: int, address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        """Return the frames of the block at ``address`` (innermost first) and, where there are none, the reason."""
        ...

    def dump(self, path: str) -> None:
        """Write a snapshot pickle in PyTorch's own form to ``path``."""
        ...
