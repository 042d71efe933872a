"""A device's trace together with what its stacks say, and its events and addresses in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vramscope.agent.categories import CATEGORIES
from vramscope.columns import U8, DeviceMap
from vramscope.snapshot.columns import ACTION_CODE, ACTIONS, I32, I64, NONE, Snapshot
from vramscope.trace.categories import StackRules, frame_label
from vramscope.trace.columns import BEFORE, DeviceTrace
from vramscope.units import format_address, format_bytes

NO_SITE, ONLY_TORCH = "no stack recorded", "no frame outside torch"
UNKNOWN_CATEGORY = CATEGORIES[0]
# What the filters of events are called, and the actions that each lets through.
KINDS = {
    "alloc": ("alloc",),
    "free": ("free_requested", "free_completed"),
    "segment": ("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    "oom": ("oom",),
    "snapshot": ("snapshot",),
    "annotate": ("annotate",),
}
WITH_ADDRESS = (*KINDS["alloc"], *KINDS["free"], *KINDS["segment"])


@dataclass(frozen=True, eq=False)
class Described:
    """``rules`` and ``sites`` (K,) are of the snapshot's stacks; see vramscope.trace.categories."""

    snapshot: Snapshot
    trace: DeviceTrace
    rules: StackRules
    sites: I32

    @cached_property
    def allocation_of_event(self) -> I64:
        """The allocation that each event makes or frees (E,), -1 where there is none."""
        own, count = self.trace.allocations, self.trace.event_count
        found = np.full(count + 1, -1)
        for event in (own.last_event, own.free_event, own.first_event):
            # Position E takes those that have no such event.
            found[np.where(event == BEFORE, count, event)] = np.arange(len(own))
        return found[:count]

    def site(self, stack: int) -> str:
        """Return the allocation site of a stack in words."""
        if stack == NONE:
            return NO_SITE
        frame = int(self.sites[stack])
        return ONLY_TORCH if frame == NONE else frame_label(self.snapshot, frame)

    def category(self, stack: int) -> str:
        """Return the owner category of a stack, an estimate."""
        return UNKNOWN_CATEGORY if stack == NONE else CATEGORIES[self.rules.category[stack]]

    def categories(self, stack: I32) -> U8:
        """Return the codes of the owner categories of stacks, of whatever number."""
        known = stack != NONE
        codes = np.zeros(len(stack), np.uint8)
        codes[known] = self.rules.category[stack[known]]
        return codes

    def time_us(self, event: int) -> int | None:
        """Return when an event was; None before the trace, behind it, or where times are not recorded."""
        times = self.trace.events.time_us
        return None if times is None or not 0 <= event < len(times) else int(times[event])

    def event_row(self, event: int) -> dict[str, Any]:
        """Return what the page says about one event; what its action does not have is None."""
        events = self.trace.events
        code = int(events.action[event])
        action = ACTIONS[code] if code < len(ACTIONS) else "of a later release"
        address = format_address(int(events.address[event])) if action in WITH_ADDRESS else None
        size = int(events.size_bytes[event])
        site = self.site(int(events.stack[event]))
        allocation = int(self.allocation_of_event[event])
        place = "" if address is None else f" at {address}"
        return {
            "event": event,
            "time_us": self.time_us(event),
            "action": action,
            "address": address,
            "bytes": size,
            "stream": str(int(events.stream[event])),
            "pool": self._event_pool(event),
            "site": site,
            "allocation": None if allocation < 0 else allocation,
            "label": f"{action} {format_bytes(size)}{place}" + ("" if site == NO_SITE else f" by {site}"),
        }

    def _event_pool(self, event: int) -> str | None:
        events = self.trace.events
        if events.pool_a is None or events.pool_b is None:
            return None
        return pool_name(int(events.pool_a[event]), int(events.pool_b[event]))


def event_codes(kinds: list[str]) -> U8:
    """Return the codes of the actions that KINDS of these names let through."""
    return np.array([ACTION_CODE[action] for kind in kinds for action in KINDS[kind]], np.uint8)


def segment_pool(state: DeviceMap, segment: int) -> str:
    """Return the name of a segment's pool."""
    return pool_name(int(state.segment_pool_a[segment]), int(state.segment_pool_b[segment]))


def pool_name(pool_a: int, pool_b: int) -> str:
    """Return a pool by its two numbers; both are 0 for the one that everybody shares."""
    return "default" if (pool_a, pool_b) == (0, 0) else f"({pool_a}, {pool_b})"
