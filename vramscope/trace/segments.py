"""When each segment, and each mapped piece of an expandable one, was there; pieces are followed back from the final state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sized
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.allocator.rounding import LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES
from vramscope.columns import U8, U64
from vramscope.snapshot.columns import ACTION_CODE, I64, NONE, DeviceSnapshot, Events
from vramscope.trace.columns import BEFORE, SegmentSpans
from vramscope.trace.lifetimes import SEGMENT_TURNS, lives_of, place_of

MAX_ADDRESS = (1 << 64) - 1
MAP, UNMAP = ACTION_CODE["segment_map"], ACTION_CODE["segment_unmap"]


class _Rows(NamedTuple):
    """Spans: ``told_by`` is an event that tells of each and ``final`` its segment in the final state, -1 where there is none."""

    address: U64
    size_bytes: U64
    first_event: I64
    last_event: I64
    told_by: I64
    final: I64
    is_expandable: U8


class _Piece(NamedTuple):
    """A mapped range on the way back: it is there until ``last``."""

    begin: int
    end: int
    last: int
    told_by: int
    final: int


def spans_of(found: DeviceSnapshot) -> tuple[SegmentSpans, int]:
    """Return the segments over the trace, and how many of its segment events cannot have led to the final state."""
    plain, wrong_plain = _plain(found)
    pieces, wrong_pieces = _pieces(found)
    rows = _joined(plain, pieces)
    rows = _Rows._make(column[np.lexsort((rows.first_event, rows.address))] for column in rows)
    return _spans(found, rows), wrong_plain + wrong_pieces + _wrong_owners(found, rows)


def _plain(found: DeviceSnapshot) -> tuple[_Rows, int]:
    events, state = found.events, found.state
    lives = lives_of(events, SEGMENT_TURNS)
    plain = np.flatnonzero(state.segment_is_expandable == 0)
    place = place_of(state.segment_address[plain], lives.address)
    is_live = lives.last_event == len(events)
    wrong = lives.ends_address & (is_live != (place >= 0))
    known = np.flatnonzero(is_live & (place >= 0))
    final = np.full(len(lives), -1)
    final[known] = plain[place[known]]
    wrong[known] |= state.segment_total_bytes[final[known]] != lives.size_bytes[known]
    # Those of which no event tells were there before the trace, and still are.
    rest = np.setdiff1d(plain, final[known])
    before, never, untold = (np.full(len(rest), value) for value in (BEFORE, len(events), -1))
    told = (
        lives.address,
        lives.size_bytes,
        lives.first_event,
        lives.last_event,
        lives.told_by,
        final,
        _flags(lives, 0),
    )
    others = (
        state.segment_address[rest],
        state.segment_total_bytes[rest],
        before,
        never,
        untold,
        rest,
        _flags(rest, 0),
    )
    return _joined(told, others), lives.wrong + int(np.count_nonzero(wrong))


def _pieces(found: DeviceSnapshot) -> tuple[_Rows, int]:
    """Return the mapped pieces. Backwards an unmap adds one, and a map takes what it covers out of those that are there."""
    events, state = found.events, found.state
    expandable = np.flatnonzero(state.segment_is_expandable)
    begins, sizes = state.segment_address[expandable].tolist(), state.segment_total_bytes[expandable].tolist()
    there = [
        _Piece(begin, begin + size, len(events), -1, final)
        for begin, size, final in zip(begins, sizes, expandable.tolist(), strict=True)
    ]
    steps = np.flatnonzero((events.action == MAP) | (events.action == UNMAP))[::-1]
    columns = (events.action[steps], events.address[steps], events.size_bytes[steps], steps)
    rows: list[tuple[int, int, int, int, int, int]] = []
    wrong = 0
    for action, begin, size, event in zip(*(column.tolist() for column in columns), strict=True):
        end = begin + size
        low, high = _within(there, begin, end)
        covered = there[low:high]
        if action == UNMAP:
            is_wrong = bool(covered) or end > MAX_ADDRESS
            wrong += is_wrong
            there[low:high] = covered if is_wrong else [_Piece(begin, end, event, event, -1)]
        elif not _is_covered(covered, begin, end):
            wrong += 1
        else:
            there[low:high] = [
                rest
                for piece in covered
                for rest in (piece._replace(end=begin), piece._replace(begin=end))
                if piece.begin <= rest.begin < rest.end <= piece.end
            ]
            rows += [
                (max(one, begin), min(other, end), event, last, event, final) for one, other, last, _, final in covered
            ]
    rows += [(begin, end, BEFORE, last, told_by, final) for begin, end, last, told_by, final in there]
    address, ends = (np.array([row[column] for row in rows], np.uint64) for column in (0, 1))
    first, last, told_by, final = (np.array([row[column] for row in rows], np.int64) for column in range(2, 6))
    return _Rows(address, ends - address, first, last, told_by, final, _flags(rows, 1)), wrong


def _joined(one: Iterable[Any], other: Iterable[Any]) -> _Rows:
    return _Rows._make(np.concatenate(pair) for pair in zip(one, other, strict=True))


def _flags(spans: Sized, flag: int) -> U8:
    return np.full(len(spans), flag, np.uint8)


def _within(there: list[_Piece], begin: int, end: int) -> tuple[int, int]:
    """Return from where to where the sorted pieces overlap a range."""
    low = bisect_right(there, begin, key=itemgetter(0))
    if low and there[low - 1].end > begin:
        low -= 1
    high = low
    while high < len(there) and there[high].begin < end:
        high += 1
    return low, high


def _is_covered(pieces: list[_Piece], begin: int, end: int) -> bool:
    """Return whether ``pieces``, which are sorted, leave no hole in a range."""
    reached = begin
    for piece in pieces:
        if piece.begin > reached:
            return False
        reached = piece.end
    return begin < end <= reached


def _spans(found: DeviceSnapshot, rows: _Rows) -> SegmentSpans:
    """Return the columns of the spans: the final state's where it has them, else those of the event that tells."""
    events, state = found.events, found.state
    told = np.flatnonzero(rows.final < 0)
    by = rows.told_by[told]

    def column(of_segments: npt.NDArray[Any], of_events: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        values = np.zeros(len(rows.final), of_segments.dtype)
        known = np.flatnonzero(rows.final >= 0)
        values[known] = of_segments[rows.final[known]]
        if of_events is not None:
            values[told] = of_events[by]
        return values

    stack = column(found.segment_stack, events.stack)
    # An event that takes memory away may have the stack of what took it away.
    stack[told[rows.first_event[told] == BEFORE]] = NONE
    return SegmentSpans(
        address=rows.address,
        total_bytes=rows.size_bytes,
        first_event=rows.first_event,
        last_event=rows.last_event,
        stream=column(state.segment_stream, events.stream),
        pool_a=column(state.segment_pool_a, events.pool_a),
        pool_b=column(state.segment_pool_b, events.pool_b),
        is_small=column(state.segment_is_small, _is_small(events)),
        is_expandable=rows.is_expandable,
        stack=stack,
    )


def _is_small(events: Events) -> U8:
    """Return for each segment event whether it is of the small pool: only there are segments, or pages, of 2 MiB.

    An unmap gives back several pages at once, which are of the small pool where they are no whole pages of the large one.
    """
    small_pages = (events.action == UNMAP) & (events.size_bytes % np.uint64(LARGE_SEGMENT_BYTES) != 0)
    is_small: U8 = ((events.size_bytes == SMALL_SEGMENT_BYTES) | small_pages).astype(np.uint8)
    return is_small


def _wrong_owners(found: DeviceSnapshot, rows: _Rows) -> int:
    """Return how many spans have another stream in the final state than in their event."""
    both = np.flatnonzero((rows.final >= 0) & (rows.told_by >= 0))
    streams = found.state.segment_stream[rows.final[both]], found.events.stream[rows.told_by[both]]
    return int(np.count_nonzero(streams[0] != streams[1]))
