"""The highest use of memory within a trace, walked back from the final state: a trace need not begin where the job did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vramscope.columns import U64
from vramscope.snapshot.changes import Changes
from vramscope.snapshot.columns import exact_sum

# Sums below this cannot overflow a signed 64-bit level.
MAX_SUM_BYTES = 1 << 62


@dataclass(frozen=True)
class Peak:
    """The highest level, and the event after which it was reached first; -1 is the moment before the trace."""

    peak_bytes: int
    event: int


def peak(found: Changes, change_bytes: U64, final_bytes: int) -> Peak | None:
    """Return the peak of a trace whose changes have ``change_bytes`` (C,) and that ended at ``final_bytes``.

    None where there is no change to see, or where a level would be below 0: then they do not belong together.
    """
    if not len(found.event) or exact_sum(change_bytes) + final_bytes > MAX_SUM_BYTES:
        return None
    signed = np.where(found.is_alloc, change_bytes.astype(np.int64), -change_bytes.astype(np.int64))
    walked = np.cumsum(signed)
    levels = np.concatenate([np.zeros(1, np.int64), walked]) + (final_bytes - int(walked[-1]))
    if int(levels.min()) < 0:
        return None
    highest = int(levels.argmax())
    return Peak(int(levels[highest]), int(found.event[highest - 1]) if highest else -1)
