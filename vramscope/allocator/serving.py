"""Serving a request: a cached block or a new one, cut to size."""

from __future__ import annotations

from vramscope.allocator import expandable as expandable_segments
from vramscope.allocator import release
from vramscope.allocator.blocks import DEFAULT_POOL, Block, Frames, Pool
from vramscope.allocator.out_of_memory import preempted
from vramscope.allocator.search import Request, best_fit
from vramscope.allocator.state import State


def take_cached(state: State, pool: Pool, stream: int, size_bytes: int, *, expandable: bool) -> Block | None:
    """Take a free block out of its set (get_free_block), or return None."""
    pool.searches += 1
    block = best_fit(state.settings, pool, stream, size_bytes, expandable=expandable)
    if block is not None:
        pool.free.remove(block)
    return block


def take_new(state: State, request: Request) -> Block | None:
    """Ask the driver; then pools that serve on out-of-memory; then release what may do and ask again; then release all."""
    release.collect_garbage(state)
    block = _take_from_driver(state, request)
    if block is None and request.pool.id == DEFAULT_POOL:
        block = _take_from_other_pools(state, request)
    if block is None and release.release_available(state, request):
        block = _take_from_driver(state, request)
    if block is None and not state.in_capture(request.stream):
        release.release_cached(state)
        state.statistics.num_alloc_retries += 1
        block = _take_from_driver(state, request)
    return block


def _take_from_other_pools(state: State, request: Request) -> Block | None:
    """Take a free block of a private pool that serves on out-of-memory. Of several PyTorch asks in the order of a hash table."""
    for pool in state.pools_for_oom(is_small=request.pool.is_small):
        block = take_cached(state, pool, request.stream, request.block_bytes, expandable=False)
        if block is not None:
            return block
    return None


def _take_from_driver(state: State, request: Request) -> Block | None:
    """Take a new segment, or new pages of an expandable one (alloc_block), or None."""
    settings, pool, segment_bytes = state.settings, request.pool, request.segment_bytes
    if state.limit_bytes is not None and state.reserved_bytes + segment_bytes > state.limit_bytes:
        return None
    if settings.throw_on_cudamalloc_oom and state.reserved_bytes + segment_bytes > state.driver.capacity_bytes:
        raise preempted(state, request)
    if settings.expandable_segments:
        return expandable_segments.allocate(state, request)
    address = state.driver.malloc(segment_bytes)
    if address is None:
        return None
    block = state.new_segment(address, segment_bytes, request.stream, pool)
    block.segment_frames = request.frames
    state.change_reserved(segment_bytes, pool)
    state.statistics.segment.increase(1, pool.is_small)
    state.statistics.num_device_alloc += 1
    if settings.is_oversize(segment_bytes):
        state.statistics.oversize_segments.increase(1)
    state.record("segment_alloc", address, segment_bytes, request.stream, pool.id, request.frames)
    return block


def split(state: State, block: Block, size_bytes: int) -> Block:
    """Return the front of a block that was taken, with the rest put back."""
    segment = block.segment
    was_split = block.prev is not None or block.next is not None
    front = state.new_block(segment, block.address, size_bytes)
    front.segment_frames, block.segment_frames = block.segment_frames, ()
    front.link_between(block.prev, block)
    block.address += size_bytes
    block.size_bytes -= size_bytes
    segment.pool.insert_free(block)
    if was_split:
        state.count_inactive_split(0, -size_bytes, segment)
    else:
        state.count_inactive_split(1, block.size_bytes, segment)
    return front


def hand_out(state: State, block: Block, size_bytes: int, frames: Frames) -> None:
    """Give a block that was taken to a request."""
    segment = block.segment
    is_small = segment.pool.is_small
    block.is_idle = False
    block.allocated = True
    block.requested_bytes = size_bytes
    block.frames = frames
    if state.records:
        state.record("alloc", block.address, size_bytes, segment.stream, segment.pool.id, frames)
    statistics = state.statistics
    statistics.allocation.increase(1, is_small)
    statistics.allocated_bytes.increase(block.size_bytes, is_small)
    statistics.active.increase(1, is_small)
    statistics.active_bytes.increase(block.size_bytes, is_small)
    statistics.requested_bytes.increase(size_bytes, is_small)
    if state.settings.is_oversize(block.size_bytes):
        statistics.oversize_allocations.increase(1)
