"""Would it fit: how a request of one stream and pool would be served now, and the largest one that would be, without serving it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import NamedTuple

from vramscope.allocator import release, search
from vramscope.allocator.blocks import DEFAULT_POOL, Block, Pool, PoolId, Segment
from vramscope.allocator.driver import PAGE_BYTES
from vramscope.allocator.expandable import page_size
from vramscope.allocator.rounding import (
    MIN_LARGE_ALLOC_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_LIMIT_BYTES,
    largest_request,
    round_size,
    round_up,
    segment_size,
)
from vramscope.allocator.state import PrivatePool, State

# The ways in which a request can be served, in the order in which the allocator tries them.
CACHED_BLOCK = "a cached block"
NEW_SEGMENT = "a new segment"
MORE_OF_EXPANDABLE = "mapping more of an expandable segment"
OTHER_POOL = "a pool that serves on out-of-memory"
AFTER_RELEASE = "after releasing cached segments"

_UNLIMITED_BYTES = 1 << 62


class Fit(NamedTuple):
    """How a request would be served: ``way`` is None where it would not be.

    ``block_bytes`` is the request as it is rounded, ``tried_bytes`` what the driver would be asked for at most, and
    ``released_bytes`` what would be given back to it before.
    """

    way: str | None
    block_bytes: int
    tried_bytes: int
    released_bytes: int


class LargestFit(NamedTuple):
    """The largest request that would be served, 0 where none would, and how."""

    size_bytes: int
    way: str | None


class _Piece(NamedTuple):
    """Contiguous idle space of an expandable segment, with or without memory behind it."""

    is_mapped: bool
    size_bytes: int


# Idle pieces in a row, from where a request would begin.
_Place = list[_Piece]


class _Means(NamedTuple):
    """What the driver could give at one stage of a request: free memory, reserved bytes, and the places in expandable segments."""

    driver_bytes: int
    reserved_bytes: int
    small_places: list[_Place]
    large_places: list[_Place]


class Prospect:
    """The answers for one stream and pool, for the state that the allocator has when this is made."""

    def __init__(self, state: State, stream: int, pool_id: PoolId) -> None:
        self._state = state
        self._stream = stream
        owner = state if pool_id == DEFAULT_POOL else state.private_pools[pool_id]
        self._is_held = isinstance(owner, PrivatePool) and owner.holders > 0
        self._small, self._large = owner.small, owner.large
        self._garbage = release.garbage(state)
        self._now = self._means_now()
        self._later = None if state.in_capture(stream) else self._means_later()

    def fit(self, size_bytes: int) -> Fit:
        """Return how a request would be served. Raises ValueError for a size that is not positive."""
        if size_bytes <= 0:
            raise ValueError(f"cannot allocate {size_bytes} bytes")
        settings = self._state.settings
        block_bytes = round_size(size_bytes, settings.roundup_power2_divisions)
        segment_bytes = segment_size(block_bytes, settings.large_segment_bytes)
        pool = self._small if block_bytes <= SMALL_LIMIT_BYTES else self._large
        request = search.Request(size_bytes, block_bytes, segment_bytes, self._stream, pool, ())
        way, released_bytes = self._way(request)
        return Fit(way, block_bytes, segment_bytes, released_bytes)

    def largest(self) -> LargestFit:
        """Return the largest request that would be served, and how."""
        divisions = self._state.settings.roundup_power2_divisions
        for size_bytes in sorted({largest_request(size, divisions) for size in self._candidates()}, reverse=True):
            if size_bytes:
                found = self.fit(size_bytes)
                if found.way is not None:
                    return LargestFit(size_bytes, found.way)
        return LargestFit(0, None)

    def _way(self, request: search.Request) -> tuple[str | None, int]:
        """Return the way and what is released before; the steps are those of malloc."""
        settings, size_bytes = self._state.settings, request.block_bytes
        is_expandable = settings.expandable_segments
        if search.best_fit(settings, request.pool, self._stream, size_bytes, expandable=is_expandable) is not None:
            return CACHED_BLOCK, 0
        new = MORE_OF_EXPANDABLE if is_expandable else NEW_SEGMENT
        collected_bytes = sum(block.size_bytes for block in self._garbage)
        if self._driver_serves(self._now, request):
            return new, collected_bytes
        if self._is_preempted(request):
            return None, collected_bytes
        if request.pool.id == DEFAULT_POOL:
            for pool in self._state.pools_for_oom(is_small=request.pool.is_small):
                if search.best_fit(settings, pool, self._stream, size_bytes, expandable=False) is not None:
                    return OTHER_POOL, collected_bytes
        oversize, is_enough = release.available(self._state, request, self._garbage)
        released_bytes = sum(block.size_bytes for block in oversize)
        if is_enough and self._driver_serves(_with_more(self._now, released_bytes), request):
            return AFTER_RELEASE, collected_bytes + released_bytes
        if self._later is None:
            return None, collected_bytes + released_bytes
        # Of a pool that somebody holds nothing more is given back than what was for the request.
        later = _with_more(self._later, released_bytes) if self._is_held else self._later
        all_bytes = self._state.reserved_bytes - later.reserved_bytes
        return (AFTER_RELEASE if self._driver_serves(later, request) else None), all_bytes

    def _is_preempted(self, request: search.Request) -> bool:
        """Return whether the request fails at once; one beyond the memory fraction goes on."""
        state, wanted_bytes = self._state, self._now.reserved_bytes + request.segment_bytes
        is_allowed = state.limit_bytes is None or wanted_bytes <= state.limit_bytes
        return state.settings.throw_on_cudamalloc_oom and is_allowed and wanted_bytes > state.driver.capacity_bytes

    def _driver_serves(self, means: _Means, request: search.Request) -> bool:
        """Return whether alloc_block would succeed."""
        state = self._state
        if request.segment_bytes > self._allowed_bytes(means):
            return False
        if not state.settings.expandable_segments:
            return round_up(request.segment_bytes, PAGE_BYTES) <= means.driver_bytes
        places = means.small_places if request.pool.is_small else means.large_places
        return _needed_bytes(places, request, page_size(state.settings, request.pool)) <= means.driver_bytes

    def _means_now(self) -> _Means:
        """Return what there is now, after the garbage was collected."""
        state = self._state
        collected_bytes = sum(block.size_bytes for block in self._garbage)
        halves = ([_place(block) for block in _starts(pool, self._stream)] for pool in (self._small, self._large))
        return _Means(state.driver.free_bytes + collected_bytes, state.reserved_bytes - collected_bytes, *halves)

    def _means_later(self) -> _Means:
        """Return what there is after release_cached."""
        state = self._state
        driver_bytes, reserved_bytes = state.driver.free_bytes, state.reserved_bytes
        places: dict[bool, list[_Place]] = {True: [], False: []}
        held = {pool_id for pool_id, private in state.private_pools.items() if private.holders}
        for segment in sorted(state.segments.values(), key=lambda segment: segment.address):
            is_held = segment.pool.id in held
            if segment.is_expandable:
                ranges = _waited_ranges(segment)
                if not is_held:
                    ranges = list(_without_whole_pages(segment, ranges))
                    pages_bytes = _unmapped_bytes(ranges) - _unmapped_now(segment)
                    driver_bytes, reserved_bytes = driver_bytes + pages_bytes, reserved_bytes - pages_bytes
                if segment.pool in (self._small, self._large) and segment.stream == self._stream:
                    places[segment.pool.is_small] += _places(ranges)
            elif not is_held and not any(block.allocated for block in segment.blocks()):
                driver_bytes += round_up(segment.size_bytes, PAGE_BYTES)
                reserved_bytes -= segment.size_bytes
        return _Means(driver_bytes, reserved_bytes, places[True], places[False])

    def _candidates(self) -> Iterator[int]:
        """Yield block sizes among which the largest is that fits: the largest of each way, whether it would be taken or not."""
        state = self._state
        is_expandable = state.settings.expandable_segments
        yield SMALL_LIMIT_BYTES
        yield min(SMALL_LIMIT_BYTES, _largest_free(self._small, self._stream, is_expandable))
        yield _largest_free(self._large, self._stream, is_expandable)
        for pool in state.pools_for_oom(is_small=False):
            yield _largest_free(pool, self._stream, False)
        for means in filter(None, (self._now, self._later)):
            room_bytes = min(means.driver_bytes, self._allowed_bytes(means))
            for oversize_bytes in (0, *self._oversize_sums()):
                for size_bytes in (oversize_bytes, room_bytes + oversize_bytes):
                    if size_bytes >= MIN_LARGE_ALLOC_BYTES:
                        yield size_bytes // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES
            if is_expandable:
                yield from self._expandable_candidates(means)

    def _oversize_sums(self) -> Iterable[int]:
        """Return the bytes of the largest oversize block, of the two largest, and so on, which may be released for a request."""
        settings = self._state.settings
        if settings.max_split_size_bytes is None:
            return ()
        sizes = [entry[0] for entry in self._large.free.of_stream(self._stream) if settings.is_oversize(entry[0])]
        return accumulate(reversed(sizes))

    def _expandable_candidates(self, means: _Means) -> Iterator[int]:
        settings = self._state.settings
        # A request goes to the first place with room for it, so each place answers only for what those before cannot.
        for pool, places in ((self._small, means.small_places), (self._large, means.large_places)):
            most_bytes = SMALL_LIMIT_BYTES if pool.is_small else _UNLIMITED_BYTES
            page_bytes = page_size(settings, pool)
            sizes = [_largest_at(place, means.driver_bytes, page_bytes) for place in places]
            sizes.append(means.driver_bytes // page_bytes * page_bytes)
            allowed_bytes = self._allowed_bytes(means) // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES
            yield from (min(size, most_bytes, allowed_bytes) for size in sizes)

    def _allowed_bytes(self, means: _Means) -> int:
        """Return how much more may be reserved."""
        state = self._state
        limits = [] if state.limit_bytes is None else [state.limit_bytes]
        if state.settings.throw_on_cudamalloc_oom:
            limits.append(state.driver.capacity_bytes)
        return max(0, min(limits) - means.reserved_bytes) if limits else _UNLIMITED_BYTES


def _with_more(means: _Means, released_bytes: int) -> _Means:
    return means._replace(
        driver_bytes=means.driver_bytes + released_bytes, reserved_bytes=means.reserved_bytes - released_bytes
    )


def _largest_free(pool: Pool, stream: int, is_expandable: bool) -> int:
    for entry in reversed(pool.free.of_stream(stream)):
        if is_expandable or not entry[3].segment.is_expandable:
            return entry[0]
    return 0


def _starts(pool: Pool, stream: int) -> Iterator[Block]:
    """Yield where requests can begin that need new pages: an unmapped block, or the free one in front of it."""
    for entry in pool.unmapped.of_stream(stream):
        before = entry[3].prev
        yield before if before is not None and before.is_idle else entry[3]


def _place(start: Block) -> _Place:
    place: _Place = []
    block: Block | None = start
    while block is not None and block.is_idle:
        place.append(_Piece(block.mapped, block.size_bytes))
        block = block.next
    return place


# Contiguous space that nobody holds: with memory behind it or not, its begin and its end.
_Range = tuple[bool, int, int]


def _waited_ranges(segment: Segment) -> list[_Range]:
    """Return the space of a segment in which nothing is allocated once pending frees are done, by address."""
    ranges: list[_Range] = []
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


def _without_whole_pages(segment: Segment, ranges: Iterable[_Range]) -> Iterator[_Range]:
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


def _unmapped_bytes(ranges: Iterable[_Range]) -> int:
    return sum(end - begin for mapped, begin, end in ranges if not mapped)


def _unmapped_now(segment: Segment) -> int:
    entries = segment.pool.unmapped.of_stream(segment.stream)
    return sum(entry[3].size_bytes for entry in entries if entry[3].segment is segment)


def _places(ranges: list[_Range]) -> Iterator[_Place]:
    """Yield where requests can begin that need new pages: at each unmapped range, or the free one in front of it."""
    for at, (mapped, begin, _) in enumerate(ranges):
        if mapped or (at and not ranges[at - 1][0] and ranges[at - 1][2] == begin):
            continue
        first = at - 1 if at and ranges[at - 1][2] == begin else at
        place: _Place = []
        end = ranges[first][1]
        for piece in islice(ranges, first, None):
            if piece[1] != end:
                break
            place.append(_Piece(piece[0], piece[2] - piece[1]))
            end = piece[2]
        yield place


def _needed_bytes(places: list[_Place], request: search.Request, page_bytes: int) -> int:
    """Return what has to be mapped for a request: at the first place with room, or in a new segment."""
    size_bytes = request.block_bytes
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


def _largest_at(place: _Place, driver_bytes: int, page_bytes: int) -> int:
    """Return the largest request that could be mapped at a place with so much memory."""
    size_bytes = 0
    pages_bytes = driver_bytes // page_bytes * page_bytes
    for piece in place:
        if not piece.is_mapped and piece.size_bytes > pages_bytes:
            return size_bytes + pages_bytes
        size_bytes += piece.size_bytes
        pages_bytes -= 0 if piece.is_mapped else piece.size_bytes
    return size_bytes
