"""How much there was after each event: sums over lifetimes, and where they were highest."""

from __future__ import annotations

import numpy as np

from vramscope.columns import U64
from vramscope.snapshot.columns import I64, MOST_BYTES, exact_sum
from vramscope.trace.columns import BEFORE, Peak

# Sums below this cannot overflow a signed 64-bit level.
MAX_SUM_BYTES = 1 << 62


def level(sizes: U64, first_event: I64, last_event: I64, events: int) -> I64 | None:
    """Return the bytes that are there after each event, shape (events + 1,), the first before the trace.

    ``sizes`` are there from ``first_event`` to before ``last_event``. None where there was ever more than any device has.
    """
    if exact_sum(sizes) > MAX_SUM_BYTES:
        return None
    signed = sizes.astype(np.int64)
    changes = np.zeros(events + 2, np.int64)
    np.add.at(changes, first_event + 1, signed)
    np.subtract.at(changes, last_event + 1, signed)
    levels: I64 = np.cumsum(changes[:-1])
    return levels if levels.max() <= MOST_BYTES else None


def peak(levels: I64) -> Peak | None:
    """Return the highest level and where it was reached first, None where there was never a change to see."""
    highest = int(levels.argmax())
    if levels[highest] == levels.min():
        return None
    return Peak(int(levels[highest]), highest + BEFORE)
