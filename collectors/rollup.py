"""History as minima and maxima: samples gathered into points of 1 s, 10 s and 60 s, and into the pixels of a view. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.records import HISTORY

LEVELS_US = (1_000_000, 10_000_000, 60_000_000)
METRIC_COUNT = len(HISTORY)

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Points(NamedTuple):
    """N points in ascending time: ``time_unix_us`` (N,), ``low`` and ``high`` (N, METRIC_COUNT) in HISTORY's order.

    NaN is "not known". A sample is a point whose low and high are equal.
    """

    time_unix_us: I64
    low: F64
    high: F64

    def pick(self, chosen: slice | npt.NDArray[np.bool_] | I64) -> Points:
        """Return some of the points, as numpy's indexing chooses them."""
        return Points(self.time_unix_us[chosen], self.low[chosen], self.high[chosen])


EMPTY = Points(np.empty(0, np.int64), np.empty((0, METRIC_COUNT)), np.empty((0, METRIC_COUNT)))


def join(parts: Sequence[Points]) -> Points:
    """Return the parts, which follow each other in time, as one."""
    if not parts:
        return EMPTY
    return Points(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def roll_up(points: Points, width_us: int) -> Points:
    """Return one point for each multiple of ``width_us`` that has any, at its start. Unknown values do not count."""
    if not len(points.time_unix_us):
        return points
    start = points.time_unix_us // width_us * width_us
    first = np.flatnonzero(np.diff(start, prepend=start[0] - 1))
    return Points(start[first], np.fmin.reduceat(points.low, first), np.fmax.reduceat(points.high, first))


def by_span(points: Points, width_us: int) -> list[Points]:
    """Return the points in parts, one for each multiple of ``width_us`` that has any."""
    borders = np.flatnonzero(np.diff(points.time_unix_us // width_us)) + 1
    parts = (np.split(column, borders) for column in points)
    return [Points(*columns) for columns in zip(*parts, strict=True)]


class Rollup:
    """The rollups of one series as its samples arrive. The newest point of each level is open: it still grows."""

    def __init__(self, open_points: dict[int, Points] | None = None) -> None:
        self._open = dict(open_points or {})

    def add(self, samples: Points) -> list[tuple[int, Points]]:
        """Return for each level the points that ``samples`` changed, which replace those with the same time."""
        changed = []
        for level_us in LEVELS_US:
            points = roll_up(join([self._open.get(level_us, EMPTY), samples]), level_us)
            self._open[level_us] = points.pick(slice(-1, None))
            changed.append((level_us, points))
        return changed


def with_gaps(points: Points, spacing_us: int) -> Points:
    """Return the points with one that is NaN everywhere in the middle of each stretch of over three spacings."""
    time_us = points.time_unix_us
    before = np.flatnonzero(np.diff(time_us) > 3 * spacing_us)
    middle = (time_us[before] + time_us[before + 1]) // 2
    return Points(
        np.insert(time_us, before + 1, middle),
        np.insert(points.low, before + 1, np.nan, axis=0),
        np.insert(points.high, before + 1, np.nan, axis=0),
    )
