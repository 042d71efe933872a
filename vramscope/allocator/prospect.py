"""Would it fit: how a request of one stream and pool would be served now, and the largest one that would be, without serving it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from vramscope.allocator.state import State

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
        self._small, self._large = owner.small, owner.large
        self._garbage = release.garbage(state)
        collected_bytes = sum(block.size_bytes for block in self._garbage)
        self._now = self._means(collected_bytes, collected_bytes, waits=False)
        self._later = None if state.in_capture(stream) else self._means(*_releasable_bytes(state), waits=True)

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
        all_bytes = self._state.reserved_bytes - self._later.reserved_bytes
        return (AFTER_RELEASE if self._driver_serves(self._later, request) else None), all_bytes

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

    def _means(self, driver_bytes: int, reserved_bytes: int, *, waits: bool) -> _Means:
        """Return what there is after so much was given back; ``waits``: by release_cached, which waits for pending frees."""
        state = self._state
        halves = (_places(state, pool, self._stream, waits=waits) for pool in (self._small, self._large))
        return _Means(state.driver.free_bytes + driver_bytes, state.reserved_bytes - reserved_bytes, *halves)

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
            if room_bytes >= MIN_LARGE_ALLOC_BYTES:
                yield room_bytes // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES
            if is_expandable:
                yield from self._expandable_candidates(means)

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


def _releasable_bytes(state: State) -> tuple[int, int]:
    """Return what release_cached gives back, as the driver counts it (in whole pages) and as the allocator does."""
    driver_bytes = reserved_bytes = 0
    held = {pool_id for pool_id, private in state.private_pools.items() if private.holders}
    for segment in state.segments.values():
        if segment.pool.id in held:
            continue
        if segment.is_expandable:
            pages_bytes = sum(_whole_pages_bytes(segment, begin, end) for begin, end in _idle_ranges(segment))
            driver_bytes, reserved_bytes = driver_bytes + pages_bytes, reserved_bytes + pages_bytes
        elif not any(block.allocated for block in segment.blocks()):
            driver_bytes += round_up(segment.size_bytes, PAGE_BYTES)
            reserved_bytes += segment.size_bytes
    return driver_bytes, reserved_bytes


def _idle_ranges(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each mapped range in which nothing is allocated: pending frees are waited for."""
    begin, end = 0, 0
    for block in segment.blocks():
        if block.allocated or not block.mapped:
            if end > begin:
                yield begin, end
            begin = end = block.end
        else:
            begin, end = (begin if end == block.address and end > begin else block.address), block.end
    if end > begin:
        yield begin, end


def _whole_pages_bytes(segment: Segment, begin: int, end: int) -> int:
    page_bytes = segment.page_bytes
    first = -(-(begin - segment.address) // page_bytes)
    return max(0, (end - segment.address) // page_bytes - first) * page_bytes


def _places(state: State, pool: Pool, stream: int, *, waits: bool) -> list[_Place]:
    """Return where requests could go in the expandable segments of a pool and stream, by address.

    With ``waits`` pending frees are done and whole free pages are given back, unless somebody holds the pool.
    """
    if not state.settings.expandable_segments:
        return []
    private = state.private_pools.get(pool.id)
    releases = waits and (private is None or not private.holders)
    found: list[_Place] = []
    for segment in sorted(state.segments.values(), key=lambda segment: segment.address):
        if segment.pool is not pool or segment.stream != stream or not segment.is_expandable:
            continue
        for run in _idle_runs(segment, waits=waits):
            pieces = _pieces(segment, run, releases=releases)
            starts = [at for at, piece in enumerate(pieces) if not piece.is_mapped]
            # A place begins at the free block in front of an unmapped one, where there is one.
            found += [pieces[at - 1 if at and pieces[at - 1].is_mapped else at :] for at in starts]
    return found


def _idle_runs(segment: Segment, *, waits: bool) -> Iterator[list[Block]]:
    """Yield the blocks of each stretch in which no request lives."""
    run: list[Block] = []
    for block in segment.blocks():
        if block.allocated or not (block.is_idle or waits):
            if run:
                yield run
            run = []
        else:
            run.append(block)
    if run:
        yield run


def _pieces(segment: Segment, run: Iterable[Block], *, releases: bool) -> list[_Piece]:
    """Return a run as pieces that differ from their neighbours; with ``releases`` whole free pages are unmapped."""
    ranges: list[tuple[bool, int, int]] = []
    for block in run:
        begin = ranges.pop()[1] if ranges and ranges[-1][0] == block.mapped else block.address
        ranges.append((block.mapped, begin, block.end))
    if releases:
        ranges = [part for is_mapped, begin, end in ranges for part in _released(segment, is_mapped, begin, end)]
    pieces: list[_Piece] = []
    for is_mapped, begin, end in ranges:
        size_bytes = end - begin
        if pieces and pieces[-1].is_mapped == is_mapped:
            size_bytes += pieces.pop().size_bytes
        pieces.append(_Piece(is_mapped, size_bytes))
    return pieces


def _released(segment: Segment, is_mapped: bool, begin: int, end: int) -> Iterator[tuple[bool, int, int]]:
    """Yield a range cut into what stays mapped and the whole pages that do not."""
    pages_bytes = _whole_pages_bytes(segment, begin, end) if is_mapped else 0
    if not pages_bytes:
        yield is_mapped, begin, end
        return
    first = segment.address + round_up(begin - segment.address, segment.page_bytes)
    last = first + pages_bytes
    if begin < first:
        yield True, begin, first
    yield False, first, last
    if last < end:
        yield True, last, end


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
