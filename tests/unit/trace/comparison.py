"""Holds a moment that was reconstructed against the allocator's own state at that moment."""

from __future__ import annotations

import numpy as np

from vramscope.columns import INACTIVE, DeviceMap, check
from vramscope.trace.columns import DeviceTrace, Moment
from vramscope.trace.moment import moment_at

SEGMENT = ("address", "total_bytes", "stream", "pool_a", "pool_b", "is_small", "is_expandable")


def assert_moment(trace: DeviceTrace, event: int, true: DeviceMap, *, most_uncertain_bytes: int) -> Moment:
    """Assert that the moment after ``event`` is ``true``: blocks equal to the byte, or flagged and too small by no more than that."""
    moment = moment_at(trace, event)
    found = moment.state
    check(found)
    for name in SEGMENT:
        column = f"segment_{name}"
        assert np.array_equal(getattr(found, column), getattr(true, column)), (event, column)
    live, truly_live = found.block_state != INACTIVE, true.block_state != INACTIVE
    for column in ("block_address", "block_requested_bytes", "block_state"):
        assert np.array_equal(getattr(found, column)[live], getattr(true, column)[truly_live]), (event, column)

    missing_bytes = true.block_bytes[truly_live].astype(np.int64) - found.block_bytes[live].astype(np.int64)
    uncertain = moment.uncertain_block
    assert not np.any(missing_bytes[~uncertain[live]]), event
    assert np.all((missing_bytes >= 0) & (missing_bytes <= most_uncertain_bytes)), event
    certain_free, truly_free = _spans(found, ~live & ~uncertain), _spans(true, ~truly_live)
    assert certain_free <= truly_free if np.any(uncertain) else certain_free == truly_free, event

    assert trace.requested_bytes is not None
    assert trace.reserved_bytes is not None
    assert trace.active_bytes is not None
    assert trace.requested_bytes[event + 1] == true.block_requested_bytes[truly_live].sum()
    assert trace.reserved_bytes[event + 1] == true.segment_total_bytes.sum()
    assert trace.active_bytes[event + 1] == found.block_bytes[live].sum()
    return moment


def _spans(found: DeviceMap, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> set[tuple[int, int]]:
    return set(zip(found.block_address[which].tolist(), found.block_bytes[which].tolist(), strict=True))
