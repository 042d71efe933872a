"""A source in memory, whose figures and failures a test sets."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vramscope.agent.source import DeviceDescription

MIB = 1 << 20
BASE = 0x7000_0000_0000


def make_stats(*, reserved: int = 64 * MIB, retries: int = 0, ooms: int = 0) -> dict[str, Any]:
    """Return nested statistics in torch's shape: three quarters of what is reserved are allocated."""

    def pools(current: int) -> dict[str, dict[str, int]]:
        row = {"current": current, "peak": current + MIB, "allocated": 2 * current, "freed": current}
        return {"all": row, "small_pool": row, "large_pool": row}

    allocated = reserved // 4 * 3
    return {
        "num_alloc_retries": retries,
        "num_ooms": ooms,
        "segment": pools(4),
        "active": pools(9),
        "inactive_split": pools(3),
        "allocation": pools(9),
        "reserved_bytes": pools(reserved),
        "allocated_bytes": pools(allocated),
        "active_bytes": pools(allocated + MIB),
        "requested_bytes": pools(allocated - 1000),
        "inactive_split_bytes": pools(reserved - allocated - MIB),
    }


def make_segment(
    address: int,
    sizes: Sequence[int],
    *,
    device: int = 0,
    states: Sequence[str] = (),
    stream: int = 0,
    small: bool = False,
    pool: tuple[int, int] = (0, 0),
    expandable: bool = False,
) -> dict[str, Any]:
    """Return a segment in torch's form whose blocks have ``sizes``; their states alternate unless they are given."""
    states = states or [("active_allocated", "inactive")[place % 2] for place in range(len(sizes))]
    blocks, at = [], address
    for size, state in zip(sizes, states, strict=True):
        blocks.append({"address": at, "size": size, "requested_size": size - 12, "state": state, "frames": []})
        at += size
    return {
        "device": device,
        "address": address,
        "total_size": sum(sizes),
        "stream": stream,
        "segment_type": "small" if small else "large",
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "blocks": blocks,
    }


@dataclass
class FakeSource:
    """Implements vramscope.agent.source.Source. ``fails`` is raised by every sample while it is set."""

    devices_seen: list[DeviceDescription] = field(
        default_factory=lambda: [DeviceDescription(0, "Fake", "GPU-0", 8 << 30, "native")]
    )
    stats: dict[int, dict[str, Any]] = field(default_factory=lambda: {0: make_stats(), 1: make_stats()})
    found_segments: list[dict[str, Any]] = field(default_factory=lambda: [make_segment(BASE, [512, 1024, 2048])])
    simulated: bool = False
    torch_version: str = "2.14.1"
    map_way: str = "history-free"
    is_ready: bool = True
    lines: list[str] = field(default_factory=list)
    fails: Exception | None = None
    snapshot_s: float = 0.0
    spans: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    stacks: dict[int, list[tuple[str, int, str]]] = field(default_factory=dict)
    samples: int = 0

    def notes(self) -> Sequence[str]:
        return list(self.lines)

    def ready(self) -> bool:
        return self.is_ready

    def devices(self) -> Sequence[DeviceDescription]:
        return list(self.devices_seen)

    def memory_stats(self, device: int) -> Mapping[str, Any]:
        self.samples += 1
        if self.fails is not None:
            raise self.fails
        return self.stats[device]

    def device_memory(self, device: int) -> tuple[int, int] | None:
        return 5 << 30, 8 << 30

    def segments(self) -> Sequence[Mapping[str, Any]]:
        self.samples += 1
        if self.fails is not None:
            raise self.fails
        if self.snapshot_s:
            time.sleep(self.snapshot_s)
        return self.found_segments

    def tensor_span(self, tensor: Any) -> tuple[int, int, int] | None:
        return self.spans.get(id(tensor))

    def stack(self, device: int, address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        frames = self.stacks.get(address, [])
        return frames, None if frames else "history recording is off"

    def dump(self, path: str) -> None:
        if self.fails is not None:
            raise self.fails
        with open(path, "wb") as file:
            pickle.dump({"segments": self.found_segments}, file)
