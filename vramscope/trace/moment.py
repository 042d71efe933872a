"""The segments and blocks after one event: what is alive then, with the gaps between as free blocks, since free neighbours merge."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.columns import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE, U64, DeviceMap
from vramscope.errors import BadInputError
from vramscope.snapshot.columns import I64, NONE
from vramscope.trace.columns import BEFORE, Bools, DeviceTrace, Moment
from vramscope.trace.live import check_final, is_there

Places = npt.NDArray[np.intp]


class _Segments(NamedTuple):
    """Segments in address order; ``span`` is the place of each among the trace's spans, of its first where there are several."""

    span: Places
    address: U64
    total_bytes: U64


class _Blocks(NamedTuple):
    """Live and free blocks in address order; ``allocation`` is -1 for a free one, ``segment`` its segment's place."""

    address: U64
    size_bytes: U64
    allocation: I64
    segment: Places


def moment_at(trace: DeviceTrace, event: int) -> Moment:
    """Return the state after ``event``, from BEFORE (-1) to the last one, which gives the final state to the byte.

    Raises BadInputError with one line where the trace does not tell that moment; the final state is there unless the file
    contradicts itself.
    """
    if not BEFORE <= event < trace.event_count:
        raise BadInputError(f"there is no event {event}: the trace of device {trace.device} has {trace.event_count}")
    if not trace.tells_moments:
        return _final(trace, event)
    segments = _segments(trace, event)
    alive = np.flatnonzero(is_there(trace.allocations.first_event, trace.allocations.last_event, event))
    return _moment(trace, event, segments, _blocks(trace, event, segments, alive))


def _final(trace: DeviceTrace, event: int) -> Moment:
    """Return the final state as the file has it, where nothing else follows from it."""
    if event != trace.event_count - 1:
        why = trace.contradiction or "its segment events do not fit the final state"
        raise BadInputError(f"only the end of the trace of device {trace.device} can be shown: {why}")
    check_final(trace)
    final = trace.final
    return Moment(
        event=event,
        state=final,
        block_allocation=np.full(final.block_count, -1, np.int64),
        block_stack=trace.final_block_stack,
        segment_stack=trace.final_segment_stack,
        uncertain_block=np.zeros(final.block_count, np.bool_),
    )


def _segments(trace: DeviceTrace, event: int) -> _Segments:
    """Return the segments; mapped pieces that lie side by side in one expandable segment are one, as in PyTorch's snapshot."""
    spans = trace.segments
    there = np.flatnonzero(is_there(spans.first_event, spans.last_event, event))
    address, size = spans.address[there], spans.total_bytes[there]
    end = address + size
    if np.any(end[:-1] > address[1:]) or np.any(end <= address):
        raise _contradicting(trace, event)
    is_first = np.ones(len(there), np.bool_)
    is_first[1:] = (end[:-1] != address[1:]) | (spans.is_expandable[there[1:]] == 0)
    for owner in (spans.is_expandable, spans.stream, spans.pool_a, spans.pool_b, spans.is_small):
        is_first[1:] |= owner[there[1:]] != owner[there[:-1]]
    firsts = np.flatnonzero(is_first)
    total_bytes = np.add.reduceat(size, firsts) if len(firsts) else size
    return _Segments(there[firsts], address[firsts], total_bytes)


def _blocks(trace: DeviceTrace, event: int, segments: _Segments, alive: Places) -> _Blocks:
    """Return the live blocks, and a free one wherever they leave a gap in a segment."""
    address = trace.allocations.address[alive]
    end = address + trace.allocations.block_bytes[alive]
    segment = np.searchsorted(segments.address, address, side="right") - 1
    segment_end = segments.address + segments.total_bytes
    if len(alive) and (segment[0] < 0 or np.any(end > segment_end[segment]) or np.any(end <= address)):
        raise _contradicting(trace, event)
    # What lies before each block: the end of another one, or the start of the segment.
    is_first = np.ones(len(alive), np.bool_)
    is_first[1:] = segment[1:] != segment[:-1]
    before = segments.address[segment]
    before[1:][~is_first[1:]] = end[:-1][~is_first[1:]]
    if np.any(before > address):
        raise _contradicting(trace, event)
    behind = segments.address.copy()
    is_last = np.roll(is_first, -1)
    behind[segment[is_last]] = end[is_last]

    has_before, has_behind = before < address, behind < segment_end
    starts = np.concatenate([address, before[has_before], behind[has_behind]])
    ends = np.concatenate([end, address[has_before], segment_end[has_behind]])
    free = np.full(len(starts) - len(alive), -1)
    order = np.argsort(starts, kind="stable")
    return _Blocks(
        address=starts[order],
        size_bytes=(ends - starts)[order],
        allocation=np.concatenate([alive, free])[order],
        segment=np.concatenate([segment, segment[has_before], np.flatnonzero(has_behind)])[order],
    )


def _moment(trace: DeviceTrace, event: int, segments: _Segments, blocks: _Blocks) -> Moment:
    spans, allocations = trace.segments, trace.allocations
    live = np.flatnonzero(blocks.allocation >= 0)
    which = blocks.allocation[live]
    requested, state = np.zeros(len(blocks.address), np.uint64), np.full(len(blocks.address), INACTIVE, np.uint8)
    requested[live] = allocations.requested_bytes[which]
    state[live] = np.where(allocations.free_event[which] <= event, ACTIVE_PENDING_FREE, ACTIVE_ALLOCATED)
    stack = np.full(len(blocks.address), NONE, np.int32)
    stack[live] = allocations.stack[which]
    counts = np.bincount(blocks.segment, minlength=len(segments.span))
    times = trace.events.time_us
    return Moment(
        event=event,
        state=DeviceMap(
            device=trace.device,
            time_unix_us=0 if times is None or event == BEFORE else int(times[event]),
            segment_address=segments.address,
            segment_total_bytes=segments.total_bytes,
            segment_stream=spans.stream[segments.span],
            segment_pool_a=spans.pool_a[segments.span],
            segment_pool_b=spans.pool_b[segments.span],
            segment_is_small=spans.is_small[segments.span],
            segment_is_expandable=spans.is_expandable[segments.span],
            segment_first_block=np.concatenate([np.zeros(1, np.uint32), np.cumsum(counts, dtype=np.uint32)]),
            block_address=blocks.address,
            block_bytes=blocks.size_bytes,
            block_requested_bytes=requested,
            block_state=state,
        ),
        block_allocation=blocks.allocation,
        block_stack=stack,
        segment_stack=spans.stack[segments.span],
        uncertain_block=_uncertain(allocations.is_exact, blocks),
    )


def _uncertain(is_exact: Bools, blocks: _Blocks) -> Bools:
    """Return which blocks have an end that is not certain, and which free ones lie behind such a block."""
    is_free = blocks.allocation < 0
    uncertain = ~is_free
    uncertain[uncertain] = ~is_exact[blocks.allocation[uncertain]]
    same_segment = blocks.segment[1:] == blocks.segment[:-1]
    uncertain[1:] |= is_free[1:] & uncertain[:-1] & same_segment
    return uncertain


def _contradicting(trace: DeviceTrace, event: int) -> BadInputError:
    return BadInputError(
        f"the blocks and segments of device {trace.device} contradict each other after event {event}: "
        "part of its history is missing; other moments may be whole"
    )
