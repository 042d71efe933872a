"""In which order a request looks for memory: the free block that serves it, and whether that is cut to size."""

from __future__ import annotations

from typing import NamedTuple

from vramscope.allocator.blocks import Block, Frames, Pool, first_of_size
from vramscope.allocator.rounding import MIN_BLOCK_BYTES, SMALL_LIMIT_BYTES
from vramscope.allocator.settings import Settings


class Request(NamedTuple):
    """A request on its way: ``block_bytes`` is it rounded, ``segment_bytes`` what cudaMalloc would be asked for."""

    requested_bytes: int
    block_bytes: int
    segment_bytes: int
    stream: int
    pool: Pool
    frames: Frames


_ADDRESS_MASK = (1 << 64) - 1


def best_fit(settings: Settings, pool: Pool, stream: int, size_bytes: int, *, expandable: bool) -> Block | None:
    """Return the free block that serves a rounded request (get_free_block), or None; the block stays in its set.

    ``expandable``: the request may use expandable segments, as all do where the option is on, less those that another pool
    serves on out-of-memory.
    """
    entries = pool.free.of_stream(stream)
    index = first_of_size(entries, size_bytes)
    count = len(entries)
    if index == count:
        return None
    block = entries[index][3]
    if block.segment.is_expandable:
        if expandable:
            # The size that counts is the one a block can grow to, so a larger block may be the better fit.
            while (
                block.segment.is_expandable
                and index + 1 < count
                and entries[index + 1][3].expandable_bytes() < block.expandable_bytes()
            ):
                index += 1
                block = entries[index][3]
        else:
            while block.segment.is_expandable:
                index += 1
                if index == count:
                    return None
                block = entries[index][3]
    if settings.max_split_size_bytes is not None and _is_wasteful(settings, block.size_bytes, size_bytes):
        return None
    return block


def _is_wasteful(settings: Settings, block_bytes: int, size_bytes: int) -> bool:
    """Return whether an oversize block must not serve a request of this size."""
    if not settings.is_oversize(size_bytes):
        return settings.is_oversize(block_bytes)
    # PyTorch adds in 64 bits, and a rounding that was given as -1 wraps around.
    return block_bytes >= (size_bytes + settings.non_split_rounding_bytes) & _ADDRESS_MASK


def should_split(settings: Settings, block: Block, size_bytes: int, *, expandable: bool) -> bool:
    """Return whether what a block has beyond a request goes back to the free blocks."""
    pool = block.segment.pool
    if not pool.splits:
        return False
    rest_bytes = block.size_bytes - size_bytes
    if pool.is_small or expandable:
        return rest_bytes >= MIN_BLOCK_BYTES
    return rest_bytes > SMALL_LIMIT_BYTES and not settings.is_oversize(size_bytes)
