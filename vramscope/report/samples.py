"""The trace at a few hundred moments: in each column of the picture the one where most was in use."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from vramscope.snapshot.columns import I64
from vramscope.trace.columns import BEFORE, DeviceTrace

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Samples:
    """W columns of equal width from ``start`` to ``end``: µs where ``has_times``, else events.

    ``event`` (W,) is the event in each column after which most was in use, ``in_use_bytes`` (W,) how much: active bytes, or
    requested ones where ``is_active`` is False. ``reserved_bytes`` (W,) is the highest; None where it does not follow.
    """

    start: float
    end: float
    has_times: bool
    event: I64
    in_use_bytes: I64
    is_active: bool
    reserved_bytes: I64 | None

    def place(self, event: int, trace: DeviceTrace) -> float:
        """Return where ``event`` lies between start (0) and end (1)."""
        return (_position(trace, event) - self.start) / (self.end - self.start)


def samples_of(trace: DeviceTrace, columns: int) -> Samples | None:
    """Return ``trace`` in ``columns`` columns; None where it has no events or no levels follow."""
    levels = trace.active_bytes if trace.active_bytes is not None else trace.requested_bytes
    if levels is None or not trace.event_count:
        return None
    start, end = _position(trace, 0), _position(trace, trace.event_count - 1)
    end = max(end, start + 1)
    # How many events there were by each edge, which is the place of the level then.
    edges = np.searchsorted(_positions(trace), np.linspace(start, end, columns + 1), side="right")
    edges[0], edges[-1] = 0, trace.event_count
    highest = np.array([low + levels[low : high + 1].argmax() for low, high in pairwise(edges)])
    reserved = trace.reserved_bytes
    if reserved is not None:
        reserved = np.array([reserved[low : high + 1].max() for low, high in pairwise(edges)])
    return Samples(
        start=start,
        end=end,
        has_times=trace.events.time_us is not None,
        event=highest + BEFORE,
        in_use_bytes=levels[highest],
        is_active=trace.active_bytes is not None,
        reserved_bytes=reserved,
    )


def _positions(trace: DeviceTrace) -> F64:
    """Return where each event lies on the axis; a clock that was set back stands still until it is where it was."""
    times = trace.events.time_us
    if times is None:
        return np.arange(trace.event_count, dtype=np.float64)
    return np.maximum.accumulate(times).astype(np.float64)


def _position(trace: DeviceTrace, event: int) -> float:
    return float(_positions(trace)[max(event, 0)])


@dataclass(frozen=True, eq=False)
class Layers:
    """K allocations as layers on each other, in the order in which they were made: ``first``, ``end`` (K,) are their columns.

    ``base_bytes`` (K, W) is what lies under each in each column, ``rest_bytes`` (W,) what is in use and not among them.
    """

    allocation: I64
    first: I64
    end: I64
    size_bytes: I64
    base_bytes: I64
    rest_bytes: I64


def layers_of(trace: DeviceTrace, samples: Samples, most: int) -> Layers:
    """Return the allocations that take the most of the picture, at most ``most``."""
    found = trace.allocations
    size = (found.block_bytes if samples.is_active else found.requested_bytes).astype(np.int64)
    first = np.searchsorted(samples.event, found.first_event, side="left")
    end = np.searchsorted(samples.event, found.last_event, side="left")
    area = size.astype(np.float64) * (end - first)
    chosen = np.argsort(-area, kind="stable")[:most]
    chosen = chosen[area[chosen] > 0]
    chosen = chosen[np.argsort(found.first_event[chosen], kind="stable")]
    column = np.arange(len(samples.event))
    is_there = (first[chosen, None] <= column) & (column < end[chosen, None])
    held = np.where(is_there, size[chosen, None], 0)
    above = np.cumsum(held, axis=0)
    drawn = above[-1] if len(chosen) else np.zeros(len(column), np.int64)
    return Layers(
        allocation=chosen,
        first=first[chosen],
        end=end[chosen],
        size_bytes=size[chosen],
        base_bytes=above - held,
        rest_bytes=samples.in_use_bytes - drawn,
    )
