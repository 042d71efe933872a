"""The trace of one device as columns: lifetimes, block sizes and levels, or in one line why they do not follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vramscope.snapshot.columns import DeviceSnapshot, Snapshot
from vramscope.trace.columns import BEFORE, Allocations, DeviceTrace, SegmentSpans, TracedSnapshot
from vramscope.trace.levels import level, peak
from vramscope.trace.lifetimes import allocations_of
from vramscope.trace.segments import spans_of
from vramscope.trace.sizes import block_sizes

NO_ALLOCATIONS = Allocations(
    address=np.empty(0, np.uint64),
    requested_bytes=np.empty(0, np.uint64),
    block_bytes=np.empty(0, np.uint64),
    is_exact=np.empty(0, np.bool_),
    first_event=np.empty(0, np.int64),
    free_event=np.empty(0, np.int64),
    last_event=np.empty(0, np.int64),
    stream=np.empty(0, np.uint64),
    stack=np.empty(0, np.int32),
    final_block=np.empty(0, np.int64),
)
NO_SEGMENTS = SegmentSpans(
    address=np.empty(0, np.uint64),
    total_bytes=np.empty(0, np.uint64),
    first_event=np.empty(0, np.int64),
    last_event=np.empty(0, np.int64),
    stream=np.empty(0, np.uint64),
    pool_a=np.empty(0, np.uint64),
    pool_b=np.empty(0, np.uint64),
    is_small=np.empty(0, np.uint8),
    is_expandable=np.empty(0, np.uint8),
    stack=np.empty(0, np.int32),
)


def traced(snapshot: Snapshot) -> TracedSnapshot:
    """Return ``snapshot`` with the traces of its devices."""
    return TracedSnapshot(snapshot, tuple(trace_of(snapshot, found) for found in snapshot.devices))


def trace_of(snapshot: Snapshot, found: DeviceSnapshot) -> DeviceTrace:
    """Return what is known of ``found``, a device of ``snapshot``, over its trace; what does not follow is None and told."""
    if found.contradiction is not None:
        return _final_only(found, found.contradiction)
    if found.stated_requested_bytes is None:
        return _final_only(found, "requested bytes are not recorded")
    allocations, told_by, wrong = allocations_of(found)
    if wrong:
        return _final_only(found, f"{wrong} events of the trace do not fit the final state")
    spans, wrong_segments = spans_of(found)
    sizes = block_sizes(found, snapshot.settings, allocations, told_by, None if wrong_segments else spans)
    if sizes.wrong:
        return _final_only(
            found, f"{sizes.wrong} blocks of the trace have no room in its segments: part of its history is missing"
        )
    allocations = replace(allocations, block_bytes=sizes.block_bytes, is_exact=sizes.is_exact)
    return _with_levels(found, allocations, spans, wrong_segments, sizes.notes)


def _with_levels(
    found: DeviceSnapshot, allocations: Allocations, spans: SegmentSpans, wrong_segments: int, notes: tuple[str, ...]
) -> DeviceTrace:
    events = len(found.events)
    if found.state.segment_count and not np.any((allocations.first_event > BEFORE) | (allocations.last_event < events)):
        notes = (*notes, "no allocations were recorded (torch.cuda.memory._record_memory_history)")
    lifetime = allocations.first_event, allocations.last_event, events
    active, requested = level(allocations.block_bytes, *lifetime), level(allocations.requested_bytes, *lifetime)
    reserved = level(spans.total_bytes, spans.first_event, spans.last_event, events)
    if active is None or requested is None or reserved is None:
        return _final_only(found, "its events have sizes beyond what any device has")
    if wrong_segments:
        spans, reserved = NO_SEGMENTS, None
        line = f"{wrong_segments} segment events do not fit the final state, so segments are only known at the end"
        notes = (*notes, line)
    elif np.any(reserved < active):
        return _final_only(found, "more is allocated than reserved at some moments: part of its history is missing")
    is_exact = bool(np.all(allocations.is_exact))
    return replace(
        _final_only(found, None),
        allocations=allocations,
        segments=spans,
        active_bytes=active,
        requested_bytes=requested,
        reserved_bytes=reserved,
        active_is_exact=is_exact,
        peak_active=peak(active) if is_exact else None,
        peak_requested=peak(requested),
        starts_mid_run=bool(np.any(allocations.first_event == BEFORE)),
        notes=notes,
    )


def _final_only(found: DeviceSnapshot, contradiction: str | None) -> DeviceTrace:
    """Return the trace of which nothing but the final state is told."""
    return DeviceTrace(
        device=found.device,
        final=found.state,
        final_block_stack=found.block_stack,
        final_segment_stack=found.segment_stack,
        events=found.events,
        allocations=NO_ALLOCATIONS,
        segments=NO_SEGMENTS,
        active_bytes=None,
        requested_bytes=None,
        reserved_bytes=None,
        active_is_exact=False,
        peak_active=None,
        peak_requested=None,
        starts_mid_run=False,
        contradiction=contradiction,
    )
