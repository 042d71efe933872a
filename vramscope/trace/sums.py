"""The sums over the blocks of one moment."""

from __future__ import annotations

import numpy as np

from vramscope.columns import INACTIVE
from vramscope.snapshot.columns import exact_sum
from vramscope.trace.columns import Moment


def sums_of(moment: Moment, *, knows_requests: bool) -> dict[str, int | None]:
    """Return the sums by name; requested bytes are None where the file does not know requests."""
    state = moment.state
    free = state.block_state == INACTIVE
    return {
        "reserved_bytes": exact_sum(state.segment_total_bytes),
        "active_bytes": exact_sum(state.block_bytes[~free]),
        "requested_bytes": exact_sum(state.block_requested_bytes[~free]) if knows_requests else None,
        "free_bytes": exact_sum(state.block_bytes[free]),
        "largest_free_bytes": int(state.block_bytes[free].max()) if np.any(free) else 0,
    }
