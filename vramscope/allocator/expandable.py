"""Expandable segments: address space for the whole device, with memory mapped behind it page by page."""

from __future__ import annotations

from vramscope.allocator.blocks import Block, Frames, Pool, try_merge
from vramscope.allocator.rounding import SMALL_SEGMENT_BYTES, round_up
from vramscope.allocator.search import Request
from vramscope.allocator.settings import Settings
from vramscope.allocator.state import State


def allocate(state: State, request: Request) -> Block | None:
    """Map pages until a block of the request's size is there and return it, out of the free set; or None where memory ran out.

    Pages that were mapped before memory ran out stay, as a free block.
    """
    size_bytes = request.block_bytes
    block = find(request.pool, request.stream, size_bytes) or _new_segment(state, request)
    if block is None:
        return None
    if not block.mapped and not _map(state, block, min(block.size_bytes, size_bytes), request.frames):
        return None
    while block.size_bytes < size_bytes:
        behind = block.next
        assert behind is not None, "the place that was found has no room"
        if not _map(state, behind, min(size_bytes - block.size_bytes, behind.size_bytes), request.frames):
            return None
        block = behind
    request.pool.free.remove(block)
    return block


def _new_segment(state: State, request: Request) -> Block | None:
    """Return the one unmapped block of a new segment, or None where there is no address space for it."""
    page_bytes = page_size(state.settings, request.pool)
    reserved_bytes = address_space_bytes(state.driver.capacity_bytes, page_bytes)
    address = state.driver.reserve(reserved_bytes)
    if address is None:
        return None
    block = state.new_segment(address, reserved_bytes, request.stream, request.pool, page_bytes)
    request.pool.unmapped.insert(block)
    return block


def page_size(settings: Settings, pool: Pool) -> int:
    return SMALL_SEGMENT_BYTES if pool.is_small else settings.large_segment_bytes


def address_space_bytes(capacity_bytes: int, page_bytes: int) -> int:
    """Return how much is reserved for a segment: 9/8 of the device, so that pages can move to its end while holes stay behind."""
    return round_up(capacity_bytes + capacity_bytes // 8, page_bytes)


def find(pool: Pool, stream: int, size_bytes: int) -> Block | None:
    """Return the lowest idle block, free or unmapped, that begins enough contiguous idle space of existing segments, or None."""
    for entry in pool.unmapped.of_stream(stream):
        unmapped = entry[3]
        before = unmapped.prev
        start = before if before is not None and before.is_idle else unmapped
        if _has_room(start, size_bytes):
            return start
    return None


def _has_room(start: Block, size_bytes: int) -> bool:
    room_bytes = 0
    block: Block | None = start
    while room_bytes < size_bytes and block is not None and block.is_idle:
        room_bytes += block.size_bytes
        block = block.next
    return room_bytes >= size_bytes


def _map(state: State, block: Block, size_bytes: int, frames: Frames) -> bool:
    """Map at least ``size_bytes`` at the front of an unmapped block, and merge it with its free neighbours."""
    segment, pool = block.segment, block.segment.pool
    mapped_bytes = round_up(size_bytes, segment.page_bytes)
    if not state.driver.map(mapped_bytes):
        return False
    pool.unmapped.remove(block)
    block.mapped = True
    state.record("segment_map", block.address, mapped_bytes, segment.stream, pool.id, frames)
    if mapped_bytes < block.size_bytes:
        rest = state.new_block(segment, block.address + mapped_bytes, block.size_bytes - mapped_bytes, mapped=False)
        rest.link_between(block, block.next)
        pool.unmapped.insert(rest)
        block.size_bytes = mapped_bytes
    try_merge(block, block.prev)
    try_merge(block, block.next)
    if block.prev is None and not block.segment_frames:
        block.segment_frames = frames
    pool.insert_free(block)
    state.change_reserved(mapped_bytes, pool)
    state.statistics.num_device_alloc += 1
    return True


def unmap(state: State, block: Block) -> None:
    """Give the whole pages inside a free block back to the driver; what is left of the block stays free."""
    segment, pool = block.segment, block.segment.pool
    begin = segment.address + round_up(block.address - segment.address, segment.page_bytes)
    end = segment.address + (block.end - segment.address) // segment.page_bytes * segment.page_bytes
    if begin >= end:
        return
    pool.free.remove(block)
    if begin > block.address:
        front = state.new_block(segment, block.address, begin - block.address)
        front.link_between(block.prev, block)
        pool.insert_free(front)
    if block.end > end:
        back = state.new_block(segment, end, block.end - end)
        back.link_between(block, block.next)
        pool.insert_free(back)
    block.address, block.size_bytes, block.mapped = begin, end - begin, False
    state.driver.unmap(end - begin)
    frames, block.segment_frames = block.segment_frames, ()
    try_merge(block, block.prev)
    try_merge(block, block.next)
    pool.unmapped.insert(block)
    state.change_reserved(begin - end, pool)
    state.statistics.num_device_free += 1
    state.record("segment_unmap", begin, end - begin, segment.stream, pool.id, frames)
    if not block.is_split:
        pool.unmapped.remove(block)
        state.driver.unreserve(segment.address)
        del state.segments[segment.address]
