"""Lets the agent sample a simulated GPU as it samples torch's CUDA allocator."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vramscope.agent.source import DeviceDescription
from vramscope.demo.mirror import Mirror


class SimulatedSource:
    """Fills vramscope.agent.source.Source over a Mirror; safe to call from the agent's thread while the job trains."""

    simulated = True
    torch_version: str = torch.__version__
    map_way = "simulated allocator"

    def __init__(self, mirror: Mirror, description: DeviceDescription) -> None:
        self._mirror = mirror
        self._description = description

    def notes(self) -> Sequence[str]:
        return (
            "simulated GPU: real PyTorch code without values; addresses and sizes come from a model of the allocator, "
            "and times say nothing about a GPU",
        )

    def ready(self) -> bool:
        return True

    def devices(self) -> Sequence[DeviceDescription]:
        return (self._description,)

    def memory_stats(self, device: int) -> Mapping[str, Any]:
        with self._mirror.settled() as allocator:
            return allocator.memory_stats()

    def device_memory(self, device: int) -> tuple[int, int] | None:
        with self._mirror.settled() as allocator:
            return allocator.device_free_bytes, allocator.capacity_bytes

    def segments(self) -> Sequence[Mapping[str, Any]]:
        with self._mirror.settled() as allocator:
            return allocator.segments()

    def tensor_span(self, tensor: Any) -> tuple[int, int, int] | None:
        span = self._mirror.span(tensor)
        return None if span is None else (self._description.device, *span)

    def stack(self, device: int, address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        block = next((b for s in self.segments() for b in s["blocks"] if b["address"] == address), None)
        if block is None:
            return [], "there is no block at this address any more"
        if block["state"] == "inactive":
            return [], "this block is free now, and a free block has no stack"
        frames = [(frame["filename"], frame["line"], frame["name"]) for frame in block["frames"]]
        return frames, None if frames else "no stack was recorded for this block: the demo runs without history"

    def dump(self, path: str) -> None:
        with self._mirror.settled() as allocator:
            snapshot = allocator.snapshot()
        Path(path).write_bytes(pickle.dumps(snapshot))
