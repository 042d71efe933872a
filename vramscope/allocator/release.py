"""Giving cached memory back to the driver: what fits a request, all of it, or the oldest of it."""

from __future__ import annotations

from vramscope.allocator import expandable
from vramscope.allocator.blocks import Block, Pool, PoolId
from vramscope.allocator.state import State


def release_segment(state: State, block: Block) -> None:
    """Free the segment that ``block``, which is free, fills (cudaFree)."""
    segment = block.segment
    pool = segment.pool
    statistics = state.statistics
    statistics.num_device_free += 1
    state.record("segment_free", block.address, block.size_bytes, segment.stream, pool.id, block.segment_frames)
    state.driver.free(segment.address)
    state.count_reserved(-block.size_bytes, pool)
    statistics.segment.add(-1, pool.is_small)
    if state.settings.is_oversize(block.size_bytes):
        statistics.oversize_segments.add(-1)
    pool.free.remove(block)
    del state.segments[segment.address]


def release_available(state: State, pool: Pool, stream: int, size_bytes: int) -> bool:
    """Where max_split_size is set: free one cached oversize block that is large enough, else the largest until they are."""
    limit_bytes = state.settings.max_split_size_bytes
    if limit_bytes is None:
        return False
    key_bytes = max(size_bytes, limit_bytes)
    blocks = pool.free.of_stream(stream)
    index = pool.free.index(stream, key_bytes)
    if index < len(blocks) and not blocks[index].segment.is_expandable:
        release_segment(state, blocks[index])
        return True
    released_bytes = 0
    for block in reversed(blocks[:index]):
        if released_bytes >= key_bytes or block.size_bytes < limit_bytes:
            break
        if not block.segment.is_expandable:
            released_bytes += block.size_bytes
            release_segment(state, block)
    return released_bytes >= key_bytes


def release_cached(state: State) -> None:
    """Wait for the pending frees, then give back every cached segment and page that nothing lives in (empty_cache())."""
    state.wait(lambda block: True)
    _release_pool(state, state.large)
    _release_pool(state, state.small)
    for pool_id in list(state.private_pools):
        _release_private(state, pool_id)


def release_private(state: State, pool_id: PoolId) -> None:
    """Do the same for one private pool, unless somebody holds it."""
    if not state.private_pools[pool_id].holders:
        state.wait(lambda block: block.segment.pool.id == pool_id)
        _release_private(state, pool_id)


def _release_private(state: State, pool_id: PoolId) -> None:
    private = state.private_pools[pool_id]
    if private.holders:
        return
    _release_pool(state, private.small)
    _release_pool(state, private.large)
    if all(segment.pool.id != pool_id for segment in state.segments.values()):
        del state.private_pools[pool_id]


def _release_pool(state: State, pool: Pool) -> None:
    free = list(pool.free)
    for block in free:
        if not block.segment.is_expandable and not block.is_split:
            release_segment(state, block)
    for block in free:
        if block.segment.is_expandable:
            expandable.unmap(state, block)


def collect_garbage(state: State) -> None:
    """Free unsplit cached segments of the large pool that were not used for long, down to the threshold of the limit."""
    limit_bytes = state.limit_bytes
    if limit_bytes is None or not state.settings.garbage_collection_threshold:
        return
    target_bytes = state.reserved_bytes - int(state.settings.garbage_collection_threshold * limit_bytes)
    pool = state.large
    freeable = [block for block in pool.free if not block.is_split]
    total_age, count = sum(map(pool.age, freeable)), len(freeable)
    reclaimed_bytes = 0
    while reclaimed_bytes < target_bytes and count:
        oldest = [block for block in freeable if pool.age(block) >= total_age / count]
        if not oldest:
            break
        for block in oldest:
            reclaimed_bytes += block.size_bytes
            total_age -= pool.age(block)
            count -= 1
            release_segment(state, block)
            freeable.remove(block)
