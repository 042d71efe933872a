"""The free block that each allocation of the large pool took, and where blocks were seen to end: every event is followed."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np

from vramscope.columns import U64
from vramscope.snapshot.columns import I64
from vramscope.trace.columns import BEFORE, Allocations, Bools, SegmentSpans

_ADD_SEGMENT, _START_BLOCK, _ADD_BLOCK, _REMOVE_BLOCK, _REMOVE_SEGMENT = range(5)


class Gaps(NamedTuple):
    """Columns of shape (N,), 0 where nothing is known.

    ``gap_bytes`` is the free block of which an allocation took the front (0: it was not in a segment); for one from before the
    trace, the space up to the next block that was there then. ``seen_bytes`` is the size of a block right behind which another
    was made: the free block that this one took began where the first one ended.
    """

    gap_bytes: U64
    seen_bytes: U64


def gaps_of(allocations: Allocations, spans: SegmentSpans, which: Bools, events: int) -> Gaps:
    """Follow the allocations ``which`` (N,), all those in the plain segments of the large pool, through a trace of ``events``."""
    gap_bytes, seen_bytes = (array("Q", bytes(8 * len(allocations))) for _ in range(2))
    # The segments by their starts, each with the addresses of its live blocks and, as the last, its end.
    starts: list[int] = []
    segments: list[list[int]] = []
    # By the address of a live block: the addresses of its segment, and the place of its allocation.
    around: dict[int, list[int]] = {}
    place_of: dict[int, int] = {}
    columns = _steps(allocations, np.flatnonzero(which), spans, events)
    for kind, address, number in zip(*(column.tolist() for column in columns), strict=True):
        if kind == _REMOVE_BLOCK:
            addresses = around.pop(address, None)
            if addresses is not None:
                del addresses[bisect_left(addresses, address)]
            continue
        place = bisect_right(starts, address)
        if kind == _ADD_SEGMENT:
            starts.insert(place, address)
            segments.insert(place, [address + number])
        elif kind == _REMOVE_SEGMENT:
            del starts[place - 1], segments[place - 1]
        elif place and address < segments[place - 1][-1]:
            around[address] = addresses = segments[place - 1]
            at = bisect_left(addresses, address)
            gap_bytes[number] = addresses[at] - address
            if at and kind == _ADD_BLOCK:
                before = addresses[at - 1]
                seen_bytes[place_of[before]] = address - before
            addresses.insert(at, address)
            place_of[address] = number
    return Gaps(np.asarray(gap_bytes), np.asarray(seen_bytes))


def _steps(allocations: Allocations, blocks: I64, spans: SegmentSpans, events: int) -> tuple[I64, U64, U64]:
    """Return what happens, in order: its kind, an address, and the size of a segment or the place of an allocation."""
    segments = np.flatnonzero((spans.is_small == 0) & (spans.is_expandable == 0))
    from_before = allocations.first_event[blocks] == BEFORE
    # From the last to the first, so that each finds the one behind it.
    before, made = blocks[from_before][::-1], blocks[~from_before]
    gone, removed = blocks[allocations.last_event[blocks] < events], segments[spans.last_event[segments] < events]
    moment = (
        spans.first_event[segments],
        allocations.first_event[before],
        allocations.first_event[made],
        allocations.last_event[gone],
        spans.last_event[removed],
    )
    address = [spans.address[segments], *(allocations.address[one] for one in (before, made, gone))]
    address.append(spans.address[removed])
    number = [spans.total_bytes[segments], *(one.astype(np.uint64) for one in (before, made, gone, removed))]
    kind = np.repeat(np.arange(len(moment)), [len(one) for one in moment])
    order = np.argsort(np.concatenate(moment), kind="stable")
    return kind[order], np.concatenate(address)[order], np.concatenate(number)[order]
