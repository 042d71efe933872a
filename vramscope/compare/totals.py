"""The totals of one side by name."""

from __future__ import annotations

from vramscope.compare.side import Side
from vramscope.metrics import largest_free_blocks, summarize


def totals(side: Side) -> dict[str, int | None]:
    """Return the totals of one side by name: those of its moment, and the peaks of its trace."""
    state, trace = side.state, side.trace
    found = summarize(state, device_free_bytes=None, expandable=bool(state.segment_is_expandable.any()))
    stated = next(device for device in side.traced.snapshot.devices if device.device == trace.device)
    knows_requests = stated.stated_requested_bytes is not None
    return {
        "reserved_bytes": found.reserved_bytes,
        "allocated_bytes": found.allocated_bytes,
        "active_bytes": found.active_bytes,
        "requested_bytes": found.requested_bytes if knows_requests else None,
        "free_cached_bytes": found.free_cached_bytes,
        "inactive_split_bytes": found.inactive_split_bytes,
        "largest_free_block_bytes": max((free.size_bytes for free in largest_free_blocks(state)), default=0),
        "segments": found.segments,
        "blocks": found.blocks,
        "peak_active_bytes": None if trace.peak_active is None else trace.peak_active.peak_bytes,
        "peak_requested_bytes": None if trace.peak_requested is None else trace.peak_requested.peak_bytes,
    }
