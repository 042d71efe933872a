"""The source of a process without a CUDA build of torch: no devices, and a line that says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramscope.agent.source import DeviceDescription
from vramscope.errors import VramscopeError


class AbsentSource:
    """Implements :class:`vramscope.agent.source.Source` where there is nothing to sample; ``reason`` is its note."""

    simulated = False
    map_way = "none"

    def __init__(self, reason: str, torch_version: str) -> None:
        self.reason = reason
        self.torch_version = torch_version

    def notes(self) -> Sequence[str]:
        return (self.reason,)

    def ready(self) -> bool:
        return False

    def devices(self) -> Sequence[DeviceDescription]:
        return ()

    def memory_stats(self, device: int) -> Mapping[str, Any]:
        return {}

    def device_memory(self, device: int) -> tuple[int, int] | None:
        return None

    def segments(self) -> Sequence[Mapping[str, Any]]:
        return ()

    def tensor_span(self, tensor: Any) -> tuple[int, int, int] | None:
        return None

    def stack(self, device: int, address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        return [], self.reason

    def dump(self, path: str) -> None:
        raise VramscopeError(self.reason)
