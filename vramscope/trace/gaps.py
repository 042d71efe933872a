"""The free block that each allocation of the large pool took, and where blocks were seen to end: every event is followed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
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
    space = _Space()
    act = (space.add_segment, space.start_block, space.add_block, space.remove_block, space.remove_segment)
    columns = _steps(allocations, np.flatnonzero(which), spans, events)
    for kind, address, number in zip(*(column.tolist() for column in columns), strict=True):
        act[kind](address, number)
    count = len(allocations)
    return Gaps(_column(space.gap_bytes, count), _column(space.seen_bytes, count))


def _column(values: dict[int, int], count: int) -> U64:
    column = np.zeros(count, np.uint64)
    column[np.fromiter(values.keys(), np.int64, len(values))] = np.fromiter(values.values(), np.uint64, len(values))
    return column


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


class _Space:
    """The segments that are there, each with the sorted addresses of its live blocks. Numbers are places of allocations."""

    def __init__(self) -> None:
        self.gap_bytes: dict[int, int] = {}
        self.seen_bytes: dict[int, int] = {}
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}
        self._blocks: dict[int, list[int]] = {}
        # By the address of a live block: its number, and the blocks of its segment.
        self._live: dict[int, tuple[int, list[int]]] = {}

    def add_segment(self, address: int, size: int) -> None:
        insort(self._starts, address)
        self._ends[address] = address + size
        self._blocks[address] = []

    def remove_segment(self, address: int, _: int) -> None:
        self._starts.remove(address)
        del self._blocks[address], self._ends[address]

    def start_block(self, address: int, number: int) -> None:
        """Add a block from before the trace; those behind it are there already."""
        self._insert(address, number)

    def add_block(self, address: int, number: int) -> None:
        """Add a block that took the front of a free one: where it begins, the one before it ends."""
        before = self._insert(address, number)
        if before is not None:
            self.seen_bytes[self._live[before][0]] = address - before

    def remove_block(self, address: int, _: int) -> None:
        _, blocks = self._live.pop(address, (0, []))
        place = bisect_left(blocks, address)
        del blocks[place : place + 1]

    def _insert(self, address: int, number: int) -> int | None:
        """Note the gap up to what lies behind, and return the address of the block before it in its segment."""
        place = bisect_right(self._starts, address)
        start = self._starts[place - 1] if place else 0
        end = self._ends.get(start, 0)
        if address >= end:
            return None
        blocks = self._blocks[start]
        place = bisect_left(blocks, address)
        self.gap_bytes[number] = (blocks[place] if place < len(blocks) else end) - address
        blocks.insert(place, address)
        self._live[address] = (number, blocks)
        return blocks[place - 1] if place else None
