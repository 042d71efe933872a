"""A part of a device's timeline at a width in pixels: the largest allocations in view, and an exact band for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.snapshot.columns import I64
from vramscope.trace.columns import BEFORE, Allocations, DeviceTrace, Peak
from vramscope.trace.extremes import Extremes

F64 = npt.NDArray[np.float64]

TIME, STEP = "time", "step"
BLOCK_BYTES, REQUESTED_BYTES = "block bytes", "requested bytes"
MOST_DRAWN = 2000
FIRST_CHUNK = 1 << 16


class ByArea(NamedTuple):
    """The N allocations by their area on an axis, the largest first: ``order`` are their places, the rest is theirs in this order."""

    order: I64
    start: F64
    stop: F64
    size_bytes: F64
    area: F64


@dataclass(frozen=True, eq=False)
class Axis:
    """Where the E events lie on an axis: in Unix time (µs), or by their number.

    ``position`` (E,) never falls; ``begin`` is where the trace begins, ``end`` where it ends. ``allocations`` and ``size_bytes``
    (N,) are what is drawn over it.
    """

    name: str
    position: F64
    begin: float
    end: float
    allocations: Allocations
    size_bytes: I64

    @cached_property
    def by_area(self) -> ByArea:
        """The allocations, the largest first; sorted when the axis is first looked at, which often only one is."""
        places = np.concatenate([[self.begin], self.position, [self.end]])
        start, stop = places[self.allocations.first_event + 1], places[self.allocations.last_event + 1]
        size = self.size_bytes.astype(np.float64)
        area = (stop - start) * size
        order = np.argsort(-area, kind="stable")
        return ByArea(order, start[order], stop[order], size[order], area[order])

    def at(self, event: int) -> float:
        """Return the position of an event; ``begin`` for BEFORE and ``end`` behind the last one."""
        if event == BEFORE:
            return self.begin
        return self.end if event >= len(self.position) else float(self.position[event])

    def event_at(self, position: float) -> int:
        """Return the last event at or before a position, BEFORE where there is none."""
        return int(np.searchsorted(self.position, position, side="right")) + BEFORE


@dataclass(frozen=True, eq=False)
class Timeline:
    """What each view of one device needs, worked out once.

    ``level`` (E + 1,) is exact, of what ``basis`` names; ``size_bytes`` (N,) are the allocations' in the same. ``started`` and
    ``ended`` (E + 1,) count the allocations that began and were gone by then.
    """

    trace: DeviceTrace
    basis: str
    level: I64
    size_bytes: I64
    levels: Extremes
    reserved: Extremes | None
    started: I64
    ended: I64
    axes: dict[str, Axis]

    @property
    def peak(self) -> Peak | None:
        return self.trace.peak_active if self.basis == BLOCK_BYTES else self.trace.peak_requested


@dataclass(frozen=True, eq=False)
class View:
    """A range of an axis in W columns, and K allocations (``allocation``, in the order in which they were made).

    ``level`` (W,) is the total at the left edge of each column, ``rest`` (W,) what of it the K do not hold, ``low`` and ``high``
    (W,) the least and the most within, ``reserved`` (W,) the most reserved (None: not known). All are exact. ``visible`` counts
    the allocations that are there at some moment of the range.
    """

    axis: Axis
    begin: float
    end: float
    allocation: I64
    start: F64
    stop: F64
    size_bytes: I64
    level: I64
    rest: I64
    low: I64
    high: I64
    reserved: I64 | None
    visible: int
    first_event: int
    last_event: int

    @property
    def peak(self) -> tuple[int, float]:
        """Return the most in view, and the left edge of the first column that has it."""
        column = int(self.high.argmax())
        return int(self.high[column]), self.begin + column * (self.end - self.begin) / len(self.high)


def timeline_of(trace: DeviceTrace) -> Timeline | None:
    """Return the timeline, of block bytes where all are certain, else of requested bytes; None where there is no trace of them."""
    basis = BLOCK_BYTES if trace.active_is_exact else REQUESTED_BYTES
    level = trace.active_bytes if trace.active_is_exact else trace.requested_bytes
    if level is None or not trace.event_count:
        return None
    own = trace.allocations
    size_bytes = (own.block_bytes if trace.active_is_exact else own.requested_bytes).astype(np.int64)
    count = len(level)
    timeline = Timeline(
        trace=trace,
        basis=basis,
        level=level,
        size_bytes=size_bytes,
        levels=Extremes(level),
        reserved=None if trace.reserved_bytes is None else Extremes(trace.reserved_bytes),
        started=np.cumsum(np.bincount(own.first_event + 1, minlength=count))[:count],
        ended=np.cumsum(np.bincount(own.last_event + 1, minlength=count))[:count],
        axes={},
    )
    timeline.axes[STEP] = _axis(timeline, STEP, np.arange(trace.event_count, dtype=np.float64))
    times = trace.events.time_us
    if times is not None:
        # Clocks are read outside the allocator's lock, so that times may fall by a little.
        timeline.axes[TIME] = _axis(timeline, TIME, np.maximum.accumulate(times).astype(np.float64))
    return timeline


def _axis(timeline: Timeline, name: str, position: F64) -> Axis:
    # One step, or one µs, more at both ends: what was before the first event and after the last one is to be seen too.
    begin, end = float(position[0]) - 1, float(position[-1]) + 1
    return Axis(name, position, begin, end, timeline.trace.allocations, timeline.size_bytes)


def view(timeline: Timeline, axis: Axis, begin: float, end: float, width: int, most: int = MOST_DRAWN) -> View:
    """Return the range ``begin``..``end`` of ``axis`` in ``width`` columns, with at most ``most`` allocations.

    The range is cut to where the trace is; one that is empty or outside becomes the whole.
    """
    begin = min(max(begin, axis.begin), axis.end)
    end = min(max(end, begin), axis.end)
    if end <= begin:
        begin, end = axis.begin, axis.end
    edges = begin + np.arange(width + 1) * ((end - begin) / width)
    edges[-1] = end
    after = np.searchsorted(axis.position, edges, side="right").astype(np.int64)
    before = np.searchsorted(axis.position, edges[1:], side="left").astype(np.int64)
    ranges = after[:-1], np.maximum(after[:-1], before) + 1
    low, high = timeline.levels.over(*ranges)
    own = axis.by_area
    chosen = _largest(own, begin, end, most)
    chosen = chosen[np.lexsort((own.order[chosen], timeline.trace.allocations.first_event[own.order[chosen]]))]
    allocation = own.order[chosen]
    level = timeline.level[after[:-1]]
    return View(
        axis=axis,
        begin=begin,
        end=end,
        allocation=allocation,
        start=own.start[chosen],
        stop=own.stop[chosen],
        size_bytes=timeline.size_bytes[allocation],
        level=level,
        rest=level - _held(timeline, allocation, after[:-1]),
        low=low,
        high=high,
        reserved=None if timeline.reserved is None else timeline.reserved.over(*ranges)[1],
        visible=int(timeline.started[before[-1]] - timeline.ended[after[0]]),
        first_event=int(after[0]) + BEFORE,
        last_event=int(before[-1]) + BEFORE,
    )


def _largest(own: ByArea, begin: float, end: float, most: int) -> I64:
    """Return the places of the ``most`` allocations with the largest area in view.

    The area in view is at most the whole area, by which they are sorted: once the next ones are smaller, no more can follow.
    """
    chosen, areas = np.empty(0, np.int64), np.empty(0)
    low, chunk = 0, FIRST_CHUNK
    while low < len(own.area) and (len(chosen) < most or areas.min() < own.area[low]):
        high = low + chunk
        overlap = np.minimum(own.stop[low:high], end) - np.maximum(own.start[low:high], begin)
        there = np.flatnonzero(overlap > 0)
        areas = np.concatenate([areas, overlap[there] * own.size_bytes[low:high][there]])
        chosen = np.concatenate([chosen, there + low])
        if len(chosen) > most:
            kept = np.argpartition(-areas, most)[:most]
            chosen, areas = chosen[kept], areas[kept]
        low, chunk = high, chunk * 2
    return chosen


def _held(timeline: Timeline, allocation: I64, after: I64) -> I64:
    """Return the bytes that the given allocations hold after as many events as ``after`` (W,) says."""
    own, size = timeline.trace.allocations, timeline.size_bytes[allocation]
    held = np.zeros(len(after), np.int64)
    for event, sign in ((own.first_event[allocation], 1), (own.last_event[allocation], -1)):
        order = np.argsort(event, kind="stable")
        total = np.concatenate([[0], np.cumsum(size[order])])
        held += sign * total[np.searchsorted(event[order] + 1, after, side="right")]
    return held
