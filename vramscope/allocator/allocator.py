"""The caching allocator of one device: malloc, free and the order in which memory is looked for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from vramscope.allocator import expandable, release
from vramscope.allocator.blocks import DEFAULT_POOL, Block, Frames, Pool, PoolId
from vramscope.allocator.driver import Driver
from vramscope.allocator.out_of_memory import out_of_memory
from vramscope.allocator.rounding import MIN_BLOCK_BYTES, SMALL_LIMIT_BYTES, round_size, segment_size
from vramscope.allocator.settings import Settings
from vramscope.allocator.snapshot import segment_dicts, snapshot_dict
from vramscope.allocator.state import PrivatePool, State, TraceEntry
from vramscope.allocator.validation import validate

_DEFAULTS = Settings()


def _unix_us() -> int:
    return time.time_ns() // 1000


class Allocator:
    """PyTorch's CUDA caching allocator (2.14, native) over a pretend driver of ``capacity_bytes``.

    ``other_bytes`` of the capacity are held by other processes. ``clock`` gives the µs of trace entries, each of which goes to
    ``on_event`` and into a ring of ``trace_max_entries``. Not thread-safe. MemPools may not serve others' requests here
    (use_on_oom), and no graph is captured.
    """

    def __init__(
        self,
        capacity_bytes: int,
        settings: Settings = _DEFAULTS,
        *,
        device: int = 0,
        other_bytes: int = 0,
        clock: Callable[[], int] = _unix_us,
        on_event: Callable[[TraceEntry], None] | None = None,
        trace_max_entries: int = 100_000,
    ) -> None:
        driver = Driver(capacity_bytes, device=device, other_bytes=other_bytes)
        self._state = State(device, driver, settings, clock, on_event, deque(maxlen=trace_max_entries))
        self._allocated: dict[int, Block] = {}
        self._diverted_to: list[PoolId] = []

    @property
    def settings(self) -> Settings:
        return self._state.settings

    @property
    def capacity_bytes(self) -> int:
        return self._state.driver.capacity_bytes

    @property
    def device_free_bytes(self) -> int:
        """What the driver has left (cudaMemGetInfo)."""
        return self._state.driver.free_bytes

    @property
    def reserved_bytes(self) -> int:
        return self._state.reserved_bytes

    def malloc(self, size_bytes: int, stream: int = 0, frames: Frames = ()) -> int:
        """Return the address of a new block. Raises OutOfMemory, or ValueError for a size that is not positive."""
        if size_bytes <= 0:
            raise ValueError(f"cannot allocate {size_bytes} bytes")
        self._state.poll()
        block_bytes = round_size(size_bytes, self.settings.roundup_power2_divisions)
        pool = self._pool(block_bytes)
        block = self._take_cached(pool, stream, block_bytes) or self._take_new(pool, stream, block_bytes, frames)
        if block is None:
            raise out_of_memory(self._state, size_bytes, block_bytes, stream, pool, frames)
        block = self._split(block, block_bytes)
        self._hand_out(block, size_bytes, frames)
        return block.address

    def free(self, address: int) -> None:
        """Free the block at ``address``; where other streams used it, it stays pending. Raises KeyError for another address."""
        state = self._state
        block = self._allocated.pop(address)
        block.allocated = False
        segment = block.segment
        state.statistics.allocation.add(-1, segment.pool.is_small)
        state.statistics.allocated_bytes.add(-block.size_bytes, segment.pool.is_small)
        if self.settings.is_oversize(block.size_bytes):
            state.statistics.oversize_allocations.add(-1)
        state.record(
            "free_requested", block.address, block.requested_bytes, segment.stream, segment.pool.id, block.frames
        )
        if not block.stream_uses:
            state.free_block(block)
            return
        block.events = len(block.stream_uses)
        state.pending += [block] * block.events
        block.stream_uses.clear()

    def record_stream(self, address: int, stream: int) -> None:
        """Note that ``stream`` uses the block too, so that its free has to wait for that stream."""
        block = self._allocated[address]
        if stream != block.segment.stream:
            block.stream_uses.add(stream)

    def complete_events(self) -> None:
        """Let all streams finish their work: pending blocks become free at the next malloc, as PyTorch polls only there."""
        self._state.completed = len(self._state.pending)

    def empty_cache(self, pool_id: PoolId | None = None) -> None:
        """Give cached memory back to the driver: all of it, or that of one private pool which nobody holds."""
        if pool_id is None:
            release.release_cached(self._state)
        else:
            release.release_private(self._state, pool_id)

    def hold_pool(self, pool_id: PoolId) -> None:
        """Add a holder (a MemPool object or a graph) to a private pool, which the first one creates."""
        if pool_id == DEFAULT_POOL:
            raise ValueError("(0, 0) is the default pool")
        private = self._state.private_pools.get(pool_id)
        if private is not None:
            private.holders += 1
            return
        small, large = (self._state.new_pool(is_small=is_small, pool_id=pool_id) for is_small in (True, False))
        self._state.private_pools[pool_id] = PrivatePool(small, large)

    def release_pool(self, pool_id: PoolId) -> None:
        """Take a holder away; without one, the pool's cached segments are given back by the next release.

        A MemPool that goes away does this and then ``empty_cache(pool_id)``.
        """
        private = self._state.private_pools[pool_id]
        if not private.holders:
            raise ValueError(f"nobody holds the pool {pool_id}")
        private.holders -= 1

    def begin_pool(self, pool_id: PoolId) -> None:
        """Serve requests from a private pool until the matching ``end_pool()``. Raises KeyError for an unknown pool."""
        if pool_id not in self._state.private_pools:
            raise KeyError(pool_id)
        self._diverted_to.append(pool_id)

    def end_pool(self) -> None:
        self._diverted_to.pop()

    def memory_stats(self) -> dict[str, Any]:
        """Return the counters in the shape of ``torch._C._cuda_memoryStats(device)``."""
        return self._state.statistics.as_dict(self.settings.max_split_size_bytes)

    def segments(self) -> list[dict[str, Any]]:
        """Return the segments in the form of ``torch.cuda.memory_snapshot()``, by address."""
        return segment_dicts(self._state)

    def snapshot(self) -> dict[str, Any]:
        """Return everything in the form of ``torch.cuda.memory._snapshot()``."""
        return snapshot_dict(self._state)

    def validate(self) -> None:
        """Raise AssertionError unless blocks, pools, driver and counters agree with each other."""
        validate(self._state, self._allocated)

    def _pool(self, block_bytes: int) -> Pool:
        owner = self._state.private_pools[self._diverted_to[-1]] if self._diverted_to else self._state
        return owner.small if block_bytes <= SMALL_LIMIT_BYTES else owner.large

    def _take_cached(self, pool: Pool, stream: int, size_bytes: int) -> Block | None:
        """Take the best fit out of the free blocks (get_free_block), or None."""
        pool.searches += 1
        blocks = pool.free.of_stream(stream)
        index = pool.free.index(stream, size_bytes)
        if self.settings.expandable_segments:
            # The size that counts is the one a block can grow to, so a larger block may be the better fit.
            while (
                index + 1 < len(blocks)
                and blocks[index].segment.is_expandable
                and blocks[index + 1].expandable_bytes() < blocks[index].expandable_bytes()
            ):
                index += 1
        else:
            while index < len(blocks) and blocks[index].segment.is_expandable:
                index += 1
        if index >= len(blocks) or self._is_wasteful(blocks[index].size_bytes, size_bytes):
            return None
        block = blocks[index]
        pool.free.remove(block)
        return block

    def _is_wasteful(self, block_bytes: int, size_bytes: int) -> bool:
        """Return whether an oversize block must not serve a request of this size."""
        settings = self.settings
        if not settings.is_oversize(size_bytes):
            return settings.is_oversize(block_bytes)
        rounding_bytes = settings.max_non_split_rounding_bytes or settings.large_segment_bytes
        return block_bytes >= size_bytes + rounding_bytes

    def _take_new(self, pool: Pool, stream: int, size_bytes: int, frames: Frames) -> Block | None:
        """Ask the driver; then release what may do and ask again; then release all that can be and ask again."""
        state = self._state
        release.collect_garbage(state)
        block = self._take_from_driver(pool, stream, size_bytes, frames)
        if block is None and release.release_available(state, pool, stream, size_bytes):
            block = self._take_from_driver(pool, stream, size_bytes, frames)
        if block is None:
            release.release_cached(state)
            state.statistics.num_alloc_retries += 1
            block = self._take_from_driver(pool, stream, size_bytes, frames)
        return block

    def _take_from_driver(self, pool: Pool, stream: int, size_bytes: int, frames: Frames) -> Block | None:
        """Take a new segment, or new pages of an expandable one (alloc_block), or None."""
        state = self._state
        segment_bytes = segment_size(size_bytes, self.settings.large_segment_bytes)
        limit_bytes = state.limit_bytes
        if limit_bytes is not None and state.reserved_bytes + segment_bytes > limit_bytes:
            return None
        if self.settings.expandable_segments:
            return expandable.allocate(state, pool, stream, size_bytes, frames)
        address = state.driver.malloc(segment_bytes)
        if address is None:
            return None
        block = state.new_segment(address, segment_bytes, stream, pool).first
        block.segment_frames = frames
        state.count_reserved(segment_bytes, pool)
        state.statistics.segment.add(1, pool.is_small)
        state.statistics.num_device_alloc += 1
        if self.settings.is_oversize(segment_bytes):
            state.statistics.oversize_segments.add(1)
        state.record("segment_alloc", address, segment_bytes, stream, pool.id, frames)
        return block

    def _should_split(self, block: Block, size_bytes: int) -> bool:
        rest_bytes = block.size_bytes - size_bytes
        if block.segment.pool.is_small or self.settings.expandable_segments:
            return rest_bytes >= MIN_BLOCK_BYTES
        return not self.settings.is_oversize(size_bytes) and rest_bytes > SMALL_LIMIT_BYTES

    def _split(self, block: Block, size_bytes: int) -> Block:
        """Return the front of a block that was taken, with the rest put back; or all of it where it is not to be split."""
        segment = block.segment
        was_split = block.is_split
        if not self._should_split(block, size_bytes):
            if was_split:
                self._state.count_inactive_split(-1, -block.size_bytes, segment)
            return block
        front = self._state.new_block(segment, block.address, size_bytes)
        front.segment_frames, block.segment_frames = block.segment_frames, ()
        front.link_between(block.prev, block)
        block.address += size_bytes
        block.size_bytes -= size_bytes
        segment.pool.insert_free(block)
        if was_split:
            self._state.count_inactive_split(0, -size_bytes, segment)
        else:
            self._state.count_inactive_split(1, block.size_bytes, segment)
        return front

    def _hand_out(self, block: Block, size_bytes: int, frames: Frames) -> None:
        state, segment = self._state, block.segment
        is_small = segment.pool.is_small
        block.allocated = True
        block.requested_bytes = size_bytes
        block.frames = frames
        self._allocated[block.address] = block
        state.record("alloc", block.address, size_bytes, segment.stream, segment.pool.id, frames)
        statistics = state.statistics
        statistics.allocation.add(1, is_small)
        statistics.allocated_bytes.add(block.size_bytes, is_small)
        statistics.active.add(1, is_small)
        statistics.active_bytes.add(block.size_bytes, is_small)
        statistics.requested_bytes.add(size_bytes, is_small)
        if self.settings.is_oversize(block.size_bytes):
            statistics.oversize_allocations.add(1)
