"""The binary frame of a part of the post-mortem timeline.

Little endian, each array at a multiple of its item size because the wider ones come first::

    magic b"VTL1" | header_bytes u32 | header, JSON, padded with spaces to a multiple of 8
    start f64[K]  end f64[K]  bytes f64[K]   the allocations drawn, in the order in which they were made, on the view's axis
    level f64[W]                             total bytes at the left edge of each column
    low f64[W]  high f64[W]                  the least and the most within the column
    rest f64[W]                              what of ``level`` the drawn allocations do not hold
    reserved f64[W]                          the most reserved within the column; NaN where not known
    allocation u32[K]                        place among the device's allocations
    colour u32[K]                            key as the header's ``colour`` says, NO_KEY for no stack
    flags u8[K]                              1 there before the trace, 2 still there at its end, 4 block size not certain
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dashboard.figures.frame import pack
from vramscope.agent.categories import CATEGORIES
from vramscope.snapshot.columns import NONE
from vramscope.trace.categories import StackRules
from vramscope.trace.columns import BEFORE
from vramscope.trace.timeline_view import Timeline, View
from vramscope.units import format_bytes

MAGIC = b"VTL1"
NO_KEY = 0xFFFF_FFFF
BEFORE_TRACE, TO_THE_END, UNCERTAIN = 1, 2, 4
COLOURS = ("category", "stack", "size", "stream")

Keys = npt.NDArray[np.uint32]


def encode(timeline: Timeline, shown: View, rules: StackRules, colour: str) -> bytes:
    """Return the frame of a view; ``colour`` is one of COLOURS."""
    own, which = timeline.trace.allocations, shown.allocation
    keys, labels = _keys(timeline, shown, rules, colour)
    flags = np.where(own.first_event[which] == BEFORE, BEFORE_TRACE, 0)
    flags |= np.where(own.last_event[which] == timeline.trace.event_count, TO_THE_END, 0)
    flags |= np.where(own.is_exact[which], 0, UNCERTAIN)
    unknown = np.full(len(shown.level), np.nan)
    reserved = unknown if shown.reserved is None else shown.reserved
    wide = (shown.start, shown.stop, shown.size_bytes, shown.level, shown.low, shown.high, shown.rest, reserved)
    columns: list[npt.NDArray[Any]] = [column.astype(np.float64) for column in wide]
    columns += [which.astype(np.uint32), keys, flags.astype(np.uint8)]
    return pack(MAGIC, _header(timeline, shown) | {"colour": colour, "labels": labels}, columns)


def _header(timeline: Timeline, shown: View) -> dict[str, Any]:
    peak_bytes, peak_at = shown.peak
    return {
        "axis": shown.axis.name,
        "from": shown.begin,
        "to": shown.end,
        "axis_from": shown.axis.begin,
        "axis_to": shown.axis.end,
        "width": len(shown.level),
        "drawn": len(shown.allocation),
        "visible": shown.visible,
        "allocations": len(timeline.trace.allocations),
        "first_event": shown.first_event,
        "last_event": shown.last_event,
        "basis": timeline.basis,
        "peak_in_view": {"bytes": peak_bytes, "at": peak_at},
    }


def _keys(timeline: Timeline, shown: View, rules: StackRules, colour: str) -> tuple[Keys, dict[str, str]]:
    """Return the colour key of each allocation drawn, and what the legend calls the keys (stacks have no names)."""
    own, which = timeline.trace.allocations, shown.allocation
    stack = own.stack[which]
    if colour == "stack":
        return np.where(stack == NONE, NO_KEY, stack.astype(np.int64)).astype(np.uint32), {}
    if colour == "stream":
        streams, place = np.unique(own.stream[which], return_inverse=True)
        return place.astype(np.uint32), {str(key): f"stream {stream}" for key, stream in enumerate(streams.tolist())}
    if colour == "size":
        powers = np.frexp(shown.size_bytes.astype(np.float64))[1] - 1
        powers = np.maximum(powers, 0)
        labels = {str(power): f"from {format_bytes(1 << power)}" for power in np.unique(powers).tolist()}
        return powers.astype(np.uint32), labels
    category = np.zeros(len(which), np.uint32)
    category[stack != NONE] = rules.category[stack[stack != NONE]]
    labels = {str(code): CATEGORIES[code] for code in np.unique(category).tolist()}
    return category, labels
