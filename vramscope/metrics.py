"""What a map of segments and blocks says: how much is free, how much of it is stranded, and what would still fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.allocator.rounding import (
    LARGE_SEGMENT_BYTES,
    MIN_LARGE_ALLOC_BYTES,
    ROUND_LARGE_BYTES,
    SMALL_LIMIT_BYTES,
    SMALL_SEGMENT_BYTES,
    round_up,
    segment_size,
)
from vramscope.columns import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE, DeviceMap

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# The ways in which the largest request would be served, in the order in which the allocator tries them.
CACHED_BLOCK = "a cached block"
NEW_SEGMENT = "a new segment"
MORE_OF_EXPANDABLE = "mapping more of an expandable segment"
AFTER_RELEASE = "after releasing cached segments"

# Unmapped address space behind the last mapped range: 9/8 of the device's memory, so never what limits a request.
_UNLIMITED_BYTES = 1 << 62


class LargestFree(NamedTuple):
    """The largest free block of one stream in one pool; ``pool`` is "small" or "large", with the id of a private pool."""

    pool: str
    stream: int
    size_bytes: int


@dataclass(frozen=True)
class MapFigures:
    """The figures of one map. Bytes are exact sums over its blocks, except where a line says otherwise.

    - ``inactive_split_bytes``: free blocks that share a segment with a live one. As in PyTorch's counter of this name,
      expandable segments are left out, because their free pages can be given back.
    - ``requested_bytes``, ``rounding_waste_bytes``: over active blocks only (an inactive block's request is stale).
    - ``releasable_bytes``: what ``empty_cache()`` would give back: segments without a live block, and whole free pages of
      expandable ones, once pending frees are done (it waits for them). Private pools are left out: a map does
      not tell whether a graph or a MemPool still holds them.
    - ``largest_free_block_bytes``: of the default stream and pool, which is where a plain allocation looks.
    - ``external_fragmentation_ratio``: 1 − largest free block / free cached bytes; None when nothing is cached.
    - ``stranded_ratio``: inactive split / reserved; None when nothing is reserved.
    - ``largest_fit_bytes``: the largest request on the default stream that would succeed now, under the allocator's
      default options, and ``largest_fit_way`` the way it would; None where the driver's free memory is not known.
      ``largest_fit_is_estimate`` is True with expandable segments (a map does not show their unmapped address space;
      tried on random programs, up to a page of 20 MiB more fits).
    """

    reserved_bytes: int
    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    rounding_waste_bytes: int
    inactive_split_bytes: int
    pending_free_bytes: int
    free_cached_bytes: int
    releasable_bytes: int
    largest_free_block_bytes: int
    external_fragmentation_ratio: float | None
    stranded_ratio: float | None
    largest_fit_bytes: int | None
    largest_fit_way: str | None
    largest_fit_is_estimate: bool
    segments: int
    blocks: int

    def as_dict(self) -> dict[str, int | float | str | None]:
        """Return the figures by name."""
        return asdict(self)


@dataclass(frozen=True)
class _Supply:
    """What a request on the default stream can be served from.

    ``tail_bytes`` and ``room_bytes`` (E,) describe the mapped ranges of large expandable segments in address order: the free
    bytes at the end of each, and the same plus the unmapped space behind it.
    """

    small_block_bytes: int
    large_block_bytes: int
    device_free_bytes: int
    releasable_bytes: int
    expandable: bool
    tail_bytes: I64
    room_bytes: I64


def summarize(found: DeviceMap, *, device_free_bytes: int | None, expandable: bool) -> MapFigures:
    """Return the figures of ``found``; ``device_free_bytes`` is cudaMemGetInfo's, ``expandable`` the job's setting."""
    state, size = found.block_state, found.block_bytes.astype(np.int64)
    allocated = int(size[state == ACTIVE_ALLOCATED].sum())
    pending = int(size[state == ACTIVE_PENDING_FREE].sum())
    free = state == INACTIVE
    free_cached = int(size[free].sum())
    requested = int(found.block_requested_bytes[~free].sum())
    reserved = int(found.segment_total_bytes.sum())
    split = _inactive_split_bytes(found, np.where(free, size, 0))
    releasable = _releasable_bytes(found, found.block_segment().astype(np.int64))
    fit_bytes, fit_way = None, None
    if device_free_bytes is not None:
        fit_bytes, fit_way = _largest_fit(_supply(found, device_free_bytes, releasable, expandable))
    default = [
        size_bytes
        for pool, stream, size_bytes in largest_free_blocks(found)
        if stream == 0 and pool in ("small", "large")
    ]
    largest_free = max(default, default=0)
    return MapFigures(
        reserved_bytes=reserved,
        allocated_bytes=allocated,
        active_bytes=allocated + pending,
        requested_bytes=requested,
        rounding_waste_bytes=allocated + pending - requested,
        inactive_split_bytes=split,
        pending_free_bytes=pending,
        free_cached_bytes=free_cached,
        releasable_bytes=releasable,
        largest_free_block_bytes=largest_free,
        external_fragmentation_ratio=1 - largest_free / free_cached if free_cached else None,
        stranded_ratio=split / reserved if reserved else None,
        largest_fit_bytes=fit_bytes,
        largest_fit_way=fit_way,
        largest_fit_is_estimate=expandable,
        segments=found.segment_count,
        blocks=found.block_count,
    )


def _segment_sums(found: DeviceMap, values: I64) -> I64:
    """Return the sum over each segment's blocks, shape (S,)."""
    starts = found.segment_first_block[:-1].astype(np.intp)
    return np.add.reduceat(values, starts) if len(starts) else np.empty(0, np.int64)


def _inactive_split_bytes(found: DeviceMap, free_bytes: I64) -> int:
    in_segment = _segment_sums(found, free_bytes)
    shared = (in_segment < found.segment_total_bytes.astype(np.int64)) & (found.segment_is_expandable == 0)
    return int(in_segment[shared].sum())


def _is_default_pool(found: DeviceMap) -> Bools:
    return np.asarray((found.segment_pool_a == 0) & (found.segment_pool_b == 0))


def _page_bytes(found: DeviceMap) -> I64:
    """Return the page size of each segment if it is expandable, shape (S,)."""
    return np.where(found.segment_is_small == 1, SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES).astype(np.int64)


def _releasable_bytes(found: DeviceMap, segment: I64) -> int:
    idle = found.block_state != ACTIVE_ALLOCATED
    starts_run = idle.copy()
    ends_run = idle.copy()
    same_segment = segment[1:] == segment[:-1]
    starts_run[1:] &= ~(idle[:-1] & same_segment)
    ends_run[:-1] &= ~(idle[1:] & same_segment)
    of = segment[starts_run]
    base = found.segment_address[of]
    begin = (found.block_address[starts_run] - base).astype(np.int64)
    end = (found.block_address[ends_run] + found.block_bytes[ends_run] - base).astype(np.int64)
    page = _page_bytes(found)[of]
    whole_pages = np.maximum(0, end // page - -(-begin // page)) * page
    whole_segment = np.where(end - begin == found.segment_total_bytes[of].astype(np.int64), end - begin, 0)
    given_back = np.where(found.segment_is_expandable[of] == 1, whole_pages, whole_segment)
    return int(given_back[_is_default_pool(found)[of]].sum())


def largest_free_blocks(found: DeviceMap) -> tuple[LargestFree, ...]:
    """Return the largest free block of each pool and stream that has a segment (0 bytes where nothing is free)."""
    free = np.where(found.block_state == INACTIVE, found.block_bytes, 0).astype(np.int64)
    starts = found.segment_first_block[:-1].astype(np.intp)
    largest = np.maximum.reduceat(free, starts) if len(starts) else np.empty(0, np.int64)
    best: dict[tuple[str, int], int] = {}
    columns = (found.segment_is_small, found.segment_pool_a, found.segment_pool_b, found.segment_stream, largest)
    for is_small, pool_a, pool_b, stream, size_bytes in zip(*(c.tolist() for c in columns), strict=True):
        pool = "small" if is_small else "large"
        if pool_a or pool_b:
            pool = f"{pool}, private ({pool_a}, {pool_b})"
        best[pool, stream] = max(size_bytes, best.get((pool, stream), 0))
    return tuple(LargestFree(pool, stream, size) for (pool, stream), size in sorted(best.items()))


def _supply(found: DeviceMap, device_free_bytes: int, releasable_bytes: int, expandable: bool) -> _Supply:
    segment = found.block_segment().astype(np.int64)
    reachable = _is_default_pool(found) & (found.segment_stream == 0)
    if not expandable:
        reachable &= found.segment_is_expandable == 0
    free = (found.block_state == INACTIVE) & reachable[segment]
    is_small = found.segment_is_small[segment] == 1
    ranges = reachable & (found.segment_is_expandable == 1) & (found.segment_is_small == 0)
    last_block = found.segment_first_block[1:].astype(np.intp)[ranges] - 1
    tail = np.where(found.block_state[last_block] == INACTIVE, found.block_bytes[last_block], 0).astype(np.int64)
    begin = found.segment_address[ranges]
    gap = np.full(len(begin), _UNLIMITED_BYTES, np.int64)
    gap[:-1] = (begin[1:] - begin[:-1] - found.segment_total_bytes[ranges][:-1]).astype(np.int64)
    return _Supply(
        small_block_bytes=int(found.block_bytes[free & is_small].max(initial=0)),
        large_block_bytes=int(found.block_bytes[free & ~is_small].max(initial=0)),
        device_free_bytes=device_free_bytes,
        releasable_bytes=releasable_bytes,
        expandable=expandable,
        tail_bytes=tail,
        room_bytes=tail + gap,
    )


def _way(supply: _Supply, block_bytes: int) -> str | None:
    """Return how a rounded request would be served, in the order in which the allocator tries, or None."""
    is_small = block_bytes <= SMALL_LIMIT_BYTES
    if block_bytes <= (supply.small_block_bytes if is_small else supply.large_block_bytes):
        return CACHED_BLOCK
    driver_bytes = supply.device_free_bytes
    if supply.expandable:
        page_bytes = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        if round_up(block_bytes - _tail_bytes(supply, block_bytes), page_bytes) <= driver_bytes:
            return MORE_OF_EXPANDABLE
        needed_bytes = round_up(block_bytes, page_bytes)
    else:
        needed_bytes = segment_size(block_bytes)
        if needed_bytes <= driver_bytes:
            return NEW_SEGMENT
    return AFTER_RELEASE if needed_bytes <= driver_bytes + supply.releasable_bytes else None


def _tail_bytes(supply: _Supply, block_bytes: int) -> int:
    """Return what is free already at the first place with room for the request; 0 for a new or a small segment."""
    places = np.flatnonzero(supply.room_bytes >= block_bytes)
    return int(supply.tail_bytes[places[0]]) if len(places) and block_bytes > SMALL_LIMIT_BYTES else 0


def _largest_fit(supply: _Supply) -> tuple[int, str | None]:
    """Return the largest of each way's own largest requests that the allocator would really serve, and its way."""
    driver_bytes = supply.device_free_bytes
    released_bytes = driver_bytes + supply.releasable_bytes
    candidates = {supply.large_block_bytes, min(supply.small_block_bytes, SMALL_LIMIT_BYTES), SMALL_LIMIT_BYTES}
    if supply.expandable:
        pages_bytes = driver_bytes // LARGE_SEGMENT_BYTES * LARGE_SEGMENT_BYTES
        candidates |= {pages_bytes, released_bytes // LARGE_SEGMENT_BYTES * LARGE_SEGMENT_BYTES}
        # A request goes to the first range with room for it, so each range answers only for what the ones before cannot.
        candidates |= set(np.minimum(supply.room_bytes, supply.tail_bytes + pages_bytes).tolist())
    else:
        for available_bytes in (driver_bytes, released_bytes):
            if available_bytes >= MIN_LARGE_ALLOC_BYTES:
                candidates.add(available_bytes // ROUND_LARGE_BYTES * ROUND_LARGE_BYTES)
    for block_bytes in sorted(candidates, reverse=True):
        way = _way(supply, block_bytes) if block_bytes else None
        if way is not None:
            return block_bytes, way
    return 0, None
