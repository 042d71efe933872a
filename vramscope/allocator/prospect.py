"""Would it fit: how a request of one stream and pool would be served now, and the largest one that would be, without serving it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from vramscope.allocator import release, search
from vramscope.allocator.blocks import DEFAULT_POOL, Pool, PoolId
from vramscope.allocator.driver import PAGE_BYTES
from vramscope.allocator.expandable import page_size
from vramscope.allocator.places import (
    Place,
    bytes_to_map,
    largest_at,
    place_at,
    places_in,
    starts,
    unmapped_bytes,
    unmapped_now,
    waited_ranges,
    without_whole_pages,
)
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


class _Means(NamedTuple):
    """What the driver could give at one stage of a request: free memory, reserved bytes, and the places in expandable segments."""

    driver_bytes: int
    reserved_bytes: int
    small_places: list[Place]
    large_places: list[Place]


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
        return bytes_to_map(places, request.block_bytes, page_size(state.settings, request.pool)) <= means.driver_bytes

    def _means_now(self) -> _Means:
        """Return what there is now, after the garbage was collected."""
        state = self._state
        collected_bytes = sum(block.size_bytes for block in self._garbage)
        halves = ([place_at(block) for block in starts(pool, self._stream)] for pool in (self._small, self._large))
        return _Means(state.driver.free_bytes + collected_bytes, state.reserved_bytes - collected_bytes, *halves)

    def _means_later(self) -> _Means:
        """Return what there is after release_cached."""
        state = self._state
        driver_bytes, reserved_bytes = state.driver.free_bytes, state.reserved_bytes
        places: dict[bool, list[Place]] = {True: [], False: []}
        held = {pool_id for pool_id, private in state.private_pools.items() if private.holders}
        for segment in sorted(state.segments.values(), key=lambda segment: segment.address):
            is_held = segment.pool.id in held
            if segment.is_expandable:
                ranges = waited_ranges(segment)
                if not is_held:
                    ranges = list(without_whole_pages(segment, ranges))
                    pages_bytes = unmapped_bytes(ranges) - unmapped_now(segment)
                    driver_bytes, reserved_bytes = driver_bytes + pages_bytes, reserved_bytes - pages_bytes
                if segment.pool in (self._small, self._large) and segment.stream == self._stream:
                    places[segment.pool.is_small] += places_in(ranges)
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
            sizes = [largest_at(place, means.driver_bytes, page_bytes) for place in places]
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
