"""What lay in memory when a request failed: how much was free, in which holes, and whose the rest was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vramscope.agent.categories import CATEGORIES
from vramscope.allocator.rounding import SMALL_LIMIT_BYTES
from vramscope.columns import INACTIVE
from vramscope.snapshot.columns import exact_sum
from vramscope.trace.columns import Bools, Moment
from vramscope.trace.described import Described
from vramscope.trace.sums import sums_of
from vramscope.units import format_address, format_bytes

MOST_SHOWN = 10


@dataclass(frozen=True)
class Holes:
    """The free blocks that a request could have used: those of its stream, pool and size class."""

    count: int
    usable_bytes: int
    largest_bytes: int


def out_of_memory(described: Described, place: int, moment: Moment | None) -> dict[str, Any]:
    """Return the figures of the out-of-memory ``place`` of the trace; ``moment`` is its state, None where it does not follow."""
    events = described.trace.events
    event = int(events.oom_event[place])
    asked, device_free = int(events.size_bytes[event]), int(events.oom_device_free_bytes[place])
    found = {
        "event": event,
        "time_us": described.time_us(event),
        "rounded_request_bytes": asked,
        "device_free_bytes": device_free,
        "frames": [list(frame) for frame in described.snapshot.frames(int(events.stack[event]))],
    }
    if moment is None:
        unknown = ("reserved_bytes", "active_bytes", "free_bytes", "usable_bytes", "holes", "largest_hole_bytes")
        line = f"{format_bytes(asked)} were asked; what lay in memory then does not follow from this file"
        return found | dict.fromkeys(unknown) | {"categories": [], "top": [], "uncertain": False, "verdict": line}
    sums = sums_of(moment, knows_requests=True)
    holes = holes_of(described, moment, event)
    return found | {
        "reserved_bytes": sums["reserved_bytes"],
        "active_bytes": sums["active_bytes"],
        "free_bytes": sums["free_bytes"],
        "usable_bytes": holes.usable_bytes,
        "holes": holes.count,
        "largest_hole_bytes": holes.largest_bytes,
        "categories": _categories(described, moment),
        "top": _top(described, moment),
        "uncertain": bool(np.any(moment.uncertain_block)),
        "verdict": verdict(asked, device_free, sums["free_bytes"] or 0, holes),
    }


def holes_of(described: Described, moment: Moment, event: int) -> Holes:
    """Return the holes for the request of an oom event. Before torch 2.12 its pool is not told: that of everybody is meant."""
    events, state = described.trace.events, moment.state
    has_pool = events.pool_a is not None and events.pool_b is not None
    pool_a = int(events.pool_a[event]) if has_pool and events.pool_a is not None else 0
    pool_b = int(events.pool_b[event]) if has_pool and events.pool_b is not None else 0
    is_small = int(events.size_bytes[event]) <= SMALL_LIMIT_BYTES
    fits: Bools = (
        (state.segment_stream == events.stream[event])
        & (state.segment_pool_a == pool_a)
        & (state.segment_pool_b == pool_b)
        & (state.segment_is_small.astype(np.bool_) == is_small)
    )
    free = state.block_bytes[(state.block_state == INACTIVE) & fits[state.block_segment()]]
    return Holes(len(free), exact_sum(free), int(free.max()) if len(free) else 0)


def verdict(asked_bytes: int, device_free_bytes: int, free_bytes: int, holes: Holes) -> str:
    """Return in one line what the figures say, and nothing that does not follow from them."""
    asked, device_free = format_bytes(asked_bytes), format_bytes(device_free_bytes)
    cached, largest = format_bytes(holes.usable_bytes), format_bytes(holes.largest_bytes)
    if holes.count and holes.largest_bytes >= asked_bytes:
        return (
            f"{asked} were asked, and a hole of {largest} was cached in the request's stream and pool; "
            "settings such as max_split_size_mb can keep a request out of it"
        )
    if holes.usable_bytes >= asked_bytes:
        return (
            f"fragmented: {asked} were asked, and {cached} were cached and free for this request, "
            f"but in {holes.count} holes of at most {largest}; the device had {device_free} free"
        )
    if free_bytes >= asked_bytes:
        return (
            f"{asked} were asked; {format_bytes(free_bytes)} were cached and free, but only {cached} of it in the request's "
            f"stream, pool and size class; the device had {device_free} free"
        )
    if device_free_bytes >= asked_bytes:
        return (
            f"{asked} were asked, and the device had {device_free} free: "
            "a limit of the process (set_per_process_memory_fraction) can refuse it all the same"
        )
    return f"full: {asked} were asked; {format_bytes(free_bytes)} were cached and free, and the device had {device_free} free"


def _categories(described: Described, moment: Moment) -> list[dict[str, Any]]:
    live = moment.state.block_state != INACTIVE
    sums = np.zeros(len(CATEGORIES), np.int64)
    np.add.at(sums, described.categories(moment.block_stack[live]), moment.state.block_bytes[live].astype(np.int64))
    order = np.argsort(-sums, kind="stable")
    return [{"category": CATEGORIES[code], "bytes": int(sums[code])} for code in order.tolist() if sums[code]]


def _top(described: Described, moment: Moment) -> list[dict[str, Any]]:
    state = moment.state
    live = np.flatnonzero(state.block_state != INACTIVE)
    order = live[np.argsort(~state.block_bytes[live], kind="stable")][:MOST_SHOWN]
    return [
        {
            "allocation": None if moment.block_allocation[block] < 0 else int(moment.block_allocation[block]),
            "address": format_address(int(state.block_address[block])),
            "bytes": int(state.block_bytes[block]),
            "category": described.category(int(moment.block_stack[block])),
            "site": described.site(int(moment.block_stack[block])),
        }
        for block in order.tolist()
    ]
