"""Builds PyTorch's segment lists from a few words, for tests of maps and figures."""

from __future__ import annotations

from typing import Any

from vramscope.columns import DeviceMap, from_segments

BASE = 0x7F00_0000_0000
STATES = {"live": "active_allocated", "pending": "active_pending_free", "free": "inactive"}


def segment(
    *blocks: tuple[int, str],
    at: int = 0,
    stream: int = 0,
    small: bool = False,
    expandable: bool = False,
    pool: tuple[int, int] = (0, 0),
    device: int = 0,
) -> dict[str, Any]:
    """Return a segment at BASE + ``at`` of (bytes, "live", "pending" or "free") blocks, each requested 100 bytes smaller."""
    address = BASE + at
    made = []
    for size, state in blocks:
        made.append({"address": address, "size": size, "requested_size": size - 100, "state": STATES[state]})
        address += size
    active = [block for block in made if block["state"] != "inactive"]
    return {
        "device": device,
        "address": BASE + at,
        "total_size": address - BASE - at,
        "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": stream,
        "segment_type": "small" if small else "large",
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "blocks": made,
    }


def device_map(*segments: dict[str, Any]) -> DeviceMap:
    return from_segments(segments, device=0)
