"""A trace at a few hundred moments: in each column of the picture the one where most was in use."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from vramscope.snapshot.columns import I64
from vramscope.trace.columns import BEFORE
from vramscope.trace.timeline_view import Axis, Timeline


@dataclass(frozen=True, eq=False)
class Samples:
    """W columns of equal width over the whole of ``axis``.

    ``event`` (W,) is the event in each column after which most was in use, ``in_use_bytes`` (W,) how much, in the timeline's
    basis. ``reserved_bytes`` (W,) is the highest in each; None where it does not follow.
    """

    axis: Axis
    event: I64
    in_use_bytes: I64
    reserved_bytes: I64 | None


@dataclass(frozen=True, eq=False)
class Layers:
    """K allocations as layers on each other, in the order in which they were made; ``first:end`` (K,) are their columns.

    ``base_bytes`` (K, W) is what lies under each in each column.
    """

    allocation: I64
    first: I64
    end: I64
    size_bytes: I64
    base_bytes: I64


def samples_of(timeline: Timeline, axis: Axis, columns: int) -> Samples:
    """Return the timeline in ``columns`` columns."""
    # How many events there were by each edge, which is the place of the level then.
    edges = np.searchsorted(axis.position, np.linspace(axis.begin, axis.end, columns + 1), side="right")
    edges[0], edges[-1] = 0, len(axis.position)
    level, reserved = timeline.level, timeline.trace.reserved_bytes
    highest = np.array([low + level[low : high + 1].argmax() for low, high in pairwise(edges)])
    if reserved is not None:
        reserved = np.array([reserved[low : high + 1].max() for low, high in pairwise(edges)])
    return Samples(axis, highest + BEFORE, level[highest], reserved)


def layers_of(timeline: Timeline, samples: Samples, most: int) -> Layers:
    """Return the allocations that take the most of the picture, at most ``most``."""
    found, size = timeline.trace.allocations, timeline.size_bytes
    first = np.searchsorted(samples.event, found.first_event, side="left")
    end = np.searchsorted(samples.event, found.last_event, side="left")
    area = size.astype(np.float64) * (end - first)
    chosen = np.argsort(-area, kind="stable")[:most]
    chosen = chosen[area[chosen] > 0]
    chosen = chosen[np.argsort(found.first_event[chosen], kind="stable")]
    column = np.arange(len(samples.event))
    is_there = (first[chosen, None] <= column) & (column < end[chosen, None])
    held = np.where(is_there, size[chosen, None], 0)
    return Layers(chosen, first[chosen], end[chosen], size[chosen], np.cumsum(held, axis=0) - held)
