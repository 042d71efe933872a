"""Where requests can go in expandable segments: idle space, with and without memory behind it, now and after a release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from vramscope.allocator.blocks import Block, Pool, Segment
from vramscope.allocator.rounding import round_up


class Piece(NamedTuple):
    """Contiguous idle space of an expandable segment, with or without memory behind it."""

    is_mapped: bool
    size_bytes: int


# Idle pieces in a row, from where a request would begin.
Place = list[Piece]


def starts(pool: Pool, stream: int) -> Iterator[Block]:
    """Yield where requests can begin that need new pages: an unmapped block, or the free one in front of it."""
    for entry in pool.unmapped.of_stream(stream):
        before = entry[3].prev
        yield before if before is not None and before.is_idle else entry[3]


def place_at(start: Block) -> Place:
    place: Place = []
    block: Block | None = start
    while block is not None and block.is_idle:
        place.append(Piece(block.mapped, block.size_bytes))
        block = block.next
    return place


# Contiguous space that nobody holds: with memory behind it or not, its begin and its end.
Range = tuple[bool, int, int]


def waited_ranges(segment: Segment) -> list[Range]:
    """Return the space of a segment in which nothing is allocated once pending frees are done, by address."""
    ranges: list[Range] = []
    mapped, begin, end = False, -1, -1
    block = segment.first
    while block is not None:
        if not block.allocated:
            if block.address != end or block.mapped != mapped:
                if end > begin:
                    ranges.append((mapped, begin, end))
                mapped, begin = block.mapped, block.address
            end = block.address + block.size_bytes
        block = block.next
    if end > begin:
        ranges.append((mapped, begin, end))
    return ranges


def without_whole_pages(segment: Segment, ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield the ranges after the whole pages of those that are mapped were given back."""
    page_bytes, base = segment.page_bytes, segment.address
    for mapped, begin, end in ranges:
        first = base + (begin - base + page_bytes - 1) // page_bytes * page_bytes
        last = base + (end - base) // page_bytes * page_bytes
        if not mapped or first >= last:
            yield mapped, begin, end
            continue
        if begin < first:
            yield True, begin, first
        yield False, first, last
        if last < end:
            yield True, last, end


def unmapped_bytes(ranges: Iterable[Range]) -> int:
    return sum(end - begin for mapped, begin, end in ranges if not mapped)


def unmapped_now(segment: Segment) -> int:
    entries = segment.pool.unmapped.of_stream(segment.stream)
    return sum(entry[3].size_bytes for entry in entries if entry[3].segment is segment)


def places_in(ranges: list[Range]) -> Iterator[Place]:
    """Yield where requests can begin that need new pages: at each unmapped range, or the free one in front of it."""
    for at, (mapped, begin, _) in enumerate(ranges):
        if mapped or (at and not ranges[at - 1][0] and ranges[at - 1][2] == begin):
            continue
        first = at - 1 if at and ranges[at - 1][2] == begin else at
        place: Place = []
        end = ranges[first][1]
        for piece in islice(ranges, first, None):
            if piece[1] != end:
                break
            place.append(Piece(piece[0], piece[2] - piece[1]))
            end = piece[2]
        yield place


def bytes_to_map(places: Iterable[Place], size_bytes: int, page_bytes: int) -> int:
    """Return what has to be mapped for a request: at the first place with room, or in a new segment."""
    for place in places:
        if sum(piece.size_bytes for piece in place) >= size_bytes:
            break
    else:
        return round_up(size_bytes, page_bytes)
    needed_bytes = 0
    for piece in place:
        if size_bytes <= 0:
            break
        if not piece.is_mapped:
            needed_bytes += round_up(min(size_bytes, piece.size_bytes), page_bytes)
        size_bytes -= piece.size_bytes
    return needed_bytes


def largest_at(place: Place, driver_bytes: int, page_bytes: int) -> int:
    """Return the largest request that could be mapped at a place with so much memory."""
    size_bytes = 0
    pages_bytes = driver_bytes // page_bytes * page_bytes
    for piece in place:
        if not piece.is_mapped and piece.size_bytes > pages_bytes:
            return size_bytes + pages_bytes
        size_bytes += piece.size_bytes
        pages_bytes -= 0 if piece.is_mapped else piece.size_bytes
    return size_bytes
