"""Giving cached memory back to the driver: what fits a request, all of it, or the oldest of it."""

from __future__ import annotations

from collections.abc import Collection

from vramscope.allocator import expandable
from vramscope.allocator.blocks import Block, Pool, PoolId, first_of_size
from vramscope.allocator.search import Request
from vramscope.allocator.state import State


def release_segment(state: State, block: Block) -> None:
    """Free the segment that ``block``, which is free, fills (cudaFree)."""
    segment = block.segment
    pool = segment.pool
    statistics = state.statistics
    statistics.num_device_free += 1
    state.record("segment_free", block.address, block.size_bytes, segment.stream, pool.id, block.segment_frames)
    state.driver.free(segment.address)
    state.change_reserved(-block.size_bytes, pool)
    statistics.segment.decrease(1, pool.is_small)
    if state.settings.is_oversize(block.size_bytes):
        statistics.oversize_segments.decrease(1)
    pool.free.remove(block)
    del state.segments[segment.address]


def available(state: State, request: Request, gone: Collection[Block] = ()) -> tuple[list[Block], bool]:
    """Return the oversize blocks, less those ``gone``, that are released for a request, and whether they are enough.

    One that is large enough, else the largest until they are; none where max_split_size is not set.
    """
    limit_bytes = state.settings.max_split_size_bytes
    if limit_bytes is None:
        return [], False
    key_bytes = max(request.block_bytes, limit_bytes)
    entries = request.pool.free.of_stream(request.stream)
    if gone:
        entries = [entry for entry in entries if entry[3] not in gone]
    index = first_of_size(entries, key_bytes)
    if index < len(entries) and _is_segment(entries[index][3]):
        return [entries[index][3]], True
    found: list[Block] = []
    found_bytes = 0
    for entry in reversed(entries[:index]):
        block = entry[3]
        if found_bytes >= key_bytes or block.size_bytes < limit_bytes:
            break
        if _is_segment(block):
            found_bytes += block.size_bytes
            found.append(block)
    return found, found_bytes >= key_bytes


def _is_segment(block: Block) -> bool:
    """Return whether a free block can be given back alone. An oversize one is split only if it was before the limit was set."""
    return not block.segment.is_expandable and not block.is_split


def release_available(state: State, request: Request) -> bool:
    """Release the oversize blocks that :func:`available` names; return whether they are enough."""
    blocks, is_enough = available(state, request)
    for block in blocks:
        release_segment(state, block)
    return is_enough


def release_cached(state: State, *, in_capture: bool = False) -> None:
    """Wait for the pending frees, then give back every cached segment and page that nothing lives in (empty_cache()).

    In a capture only those of the private pools without a holder.
    """
    if not in_capture:
        state.wait()
        _release_pool(state, state.large)
        _release_pool(state, state.small)
    for pool_id in list(state.private_pools):
        _release_private(state, pool_id)


def release_private(state: State, pool_id: PoolId) -> None:
    """Do the same for one private pool, unless somebody holds it."""
    if not state.private_pools[pool_id].holders:
        state.wait(pool_id)
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
        if _is_segment(block):
            release_segment(state, block)
    for block in free:
        if block.segment.is_expandable:
            expandable.unmap(state, block)


def garbage(state: State) -> list[Block]:
    """Return what is collected before a new segment: unsplit cached segments of the default large pool that were not used for
    long, down to the threshold of the limit."""
    limit_bytes = state.limit_bytes
    if limit_bytes is None or not state.settings.garbage_collection_threshold:
        return []
    target_bytes = state.reserved_bytes - int(state.settings.garbage_collection_threshold * limit_bytes)
    pool = state.large
    left = list(filter(_is_segment, pool.free))
    total_age, found_bytes = sum(map(pool.age, left)), 0
    found: list[Block] = []
    while found_bytes < target_bytes and left:
        # At least one block is as old as the average. Those found in one round all go, also beyond the target.
        average_age = total_age / len(left)
        oldest = [block for block in left if pool.age(block) >= average_age]
        left = [block for block in left if pool.age(block) < average_age]
        found += oldest
        found_bytes += sum(block.size_bytes for block in oldest)
        total_age -= sum(map(pool.age, oldest))
    return found


def collect_garbage(state: State) -> None:
    for block in garbage(state):
        release_segment(state, block)
