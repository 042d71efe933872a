"""The least and the most of any ranges of a long column, from the extremes of its chunks."""

from __future__ import annotations

import numpy as np

from vramscope.snapshot.columns import I64

CHUNK = 64


class Extremes:
    """Answers for thousands of ranges of ten million values within milliseconds."""

    def __init__(self, values: I64) -> None:
        """``values`` (N,), at least one."""
        firsts = np.arange(0, len(values), CHUNK)
        self._values = values
        # One more at the end, so that a range may end behind the last chunk.
        self._low = np.append(np.minimum.reduceat(values, firsts), values[-1])
        self._high = np.append(np.maximum.reduceat(values, firsts), values[-1])

    def over(self, begin: I64, end: I64) -> tuple[I64, I64]:
        """Return the least and the most of each range ``begin[i]:end[i]``, none of which is empty."""
        step = np.arange(CHUNK)
        heads = self._values[np.minimum(begin[:, None] + step, end[:, None] - 1)]
        tails = self._values[np.maximum(end[:, None] - 1 - step, begin[:, None])]
        low = np.minimum(heads.min(axis=1), tails.min(axis=1))
        high = np.maximum(heads.max(axis=1), tails.max(axis=1))
        first, last = -(-begin // CHUNK), end // CHUNK
        inner = np.flatnonzero(first < last)
        if len(inner):
            bounds = np.stack([first[inner], last[inner]], axis=1).reshape(-1)
            low[inner] = np.minimum(low[inner], np.minimum.reduceat(self._low, bounds)[::2])
            high[inner] = np.maximum(high[inner], np.maximum.reduceat(self._high, bounds)[::2])
        return low, high
