"""What the allocator holds: driver, pools, segments, statistics and trace, shared by the steps that change them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from vramscope.allocator.blocks import DEFAULT_POOL, Block, Frames, Pool, PoolId, Segment, try_merge
from vramscope.allocator.driver import Driver
from vramscope.allocator.settings import Settings
from vramscope.allocator.statistics import Statistics


class TraceEntry(NamedTuple):
    """One event, as PyTorch's memory history records it.

    ``size_bytes`` is the request for alloc and free_*, real bytes for segment_*, the rounded request for oom and the active bytes
    for snapshot. ``address`` is the driver's free bytes where the action is oom.
    """

    action: str
    address: int
    size_bytes: int
    stream: int
    time_us: int
    pool_id: PoolId
    frames: Frames


@dataclass
class PrivatePool:
    """The pools of one graph or MemPool; with no holder left, its cached segments may be released."""

    small: Pool
    large: Pool
    holders: int = 1


@dataclass
class State:
    """The whole state of one device's allocator. ``now_us`` tells the time of a trace entry."""

    device: int
    driver: Driver
    settings: Settings
    now_us: Callable[[], int]
    on_event: Callable[[TraceEntry], None] | None
    trace: deque[TraceEntry]
    statistics: Statistics = field(default_factory=Statistics)
    private_pools: dict[PoolId, PrivatePool] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    # Blocks whose free waits for another stream, once for each such stream, in order; the first ``completed`` wait no more.
    pending: list[Block] = field(default_factory=list)
    completed: int = 0
    reserved_bytes: int = 0
    small: Pool = field(init=False)
    large: Pool = field(init=False)
    _segment_number: int = 0
    _block_number: int = 0

    def __post_init__(self) -> None:
        self.small = self.new_pool(is_small=True)
        self.large = self.new_pool(is_small=False)

    def new_pool(self, *, is_small: bool, pool_id: PoolId = DEFAULT_POOL) -> Pool:
        return Pool(is_small=is_small, order=self.settings.order, id=pool_id)

    @property
    def limit_bytes(self) -> int | None:
        return self.settings.limit_bytes(self.driver.capacity_bytes)

    def record(self, action: str, address: int, size_bytes: int, stream: int, pool_id: PoolId, frames: Frames) -> None:
        entry = TraceEntry(action, address, size_bytes, stream, self.now_us(), pool_id, frames)
        self.trace.append(entry)
        if self.on_event is not None:
            self.on_event(entry)

    def new_segment(self, address: int, size_bytes: int, stream: int, pool: Pool, page_bytes: int = 0) -> Segment:
        """Add a segment that is one block, which the caller takes or inserts."""
        self._segment_number += 1
        segment = Segment(address, size_bytes, stream, pool, self._segment_number, page_bytes)
        segment.first = self.new_block(segment, address, size_bytes, mapped=page_bytes == 0)
        self.segments[address] = segment
        return segment

    def new_block(self, segment: Segment, address: int, size_bytes: int, *, mapped: bool = True) -> Block:
        self._block_number += 1
        return Block(segment, address, size_bytes, self._block_number, mapped)

    def count_reserved(self, amount_bytes: int, pool: Pool) -> None:
        self.reserved_bytes += amount_bytes
        self.statistics.add_reserved(amount_bytes, pool.is_small, pool.id)

    def count_inactive_split(self, blocks: int, size_bytes: int, segment: Segment) -> None:
        """Count free blocks that share a segment; PyTorch leaves out expandable ones, whose free pages can be given back."""
        if not segment.is_expandable:
            self.statistics.inactive_split.add(blocks, segment.pool.is_small)
            self.statistics.inactive_split_bytes.add(size_bytes, segment.pool.is_small)

    def free_block(self, block: Block) -> None:
        """Put a block that nobody uses any more into its pool, merged with its idle neighbours."""
        segment = block.segment
        pool = segment.pool
        self.record("free_completed", block.address, block.requested_bytes, segment.stream, pool.id, block.frames)
        statistics = self.statistics
        statistics.active.add(-1, pool.is_small)
        statistics.active_bytes.add(-block.size_bytes, pool.is_small)
        statistics.requested_bytes.add(-block.requested_bytes, pool.is_small)
        block.frames = ()
        merged = [try_merge(block, neighbour) for neighbour in (block.prev, block.next)]
        pool.insert_free(block)
        split = int(block.is_split)
        self.count_inactive_split(split - sum(map(bool, merged)), split * block.size_bytes - sum(merged), segment)

    def poll(self) -> None:
        """Free the blocks whose last pending use is completed."""
        completed, self.pending = self.pending[: self.completed], self.pending[self.completed :]
        self.completed = 0
        self._finish(completed)

    def wait(self, which: Callable[[Block], bool]) -> None:
        """Wait until the pending uses of the blocks for which ``which`` holds are completed, and free those blocks."""
        self.statistics.num_sync_all_streams += 1
        waited = [block for block in self.pending if which(block)]
        self.completed -= sum(map(which, self.pending[: self.completed]))
        self.pending = [block for block in self.pending if not which(block)]
        self._finish(waited)

    def _finish(self, uses: list[Block]) -> None:
        for block in uses:
            block.events -= 1
            if not block.events:
                self.free_block(block)
