"""What the allocator holds: driver, pools, segments, statistics and trace, shared by the steps that change them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from vramscope.allocator.blocks import Block, Frames, Pool, PoolId, Segment, try_merge
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


class PrivatePool:
    """The pools of one graph or MemPool; with no holder left, its cached segments may be released.

    ``serves_on_oom``: the default pool may use its free blocks when the driver has no memory left (MemPool's use_on_oom).
    """

    def __init__(self, pool_id: PoolId, *, splits: bool = True, serves_on_oom: bool = False) -> None:
        self.small = Pool(is_small=True, id=pool_id, splits=splits)
        self.large = Pool(is_small=False, id=pool_id, splits=splits)
        self.serves_on_oom = serves_on_oom
        self.holders = 1


class State:
    """The whole state of one device's allocator. ``now_us`` tells the time of a trace entry.

    Uses by other streams that a free waits for are in ``pending``, one entry each; those whose work is done wait in
    ``completed`` for the next poll. Frees in a graph's capture are ``deferred``, and ``deferred_done`` where their streams' work
    is done too. ``capturing`` has the streams of each capture that is under way, and ``current_stream`` is the caller's, or
    None for that of the capture.
    """

    def __init__(
        self,
        device: int,
        driver: Driver,
        settings: Settings,
        now_us: Callable[[], int],
        on_event: Callable[[TraceEntry], None] | None,
        trace: deque[TraceEntry],
    ) -> None:
        self.device = device
        self.driver = driver
        self.settings = settings
        self.now_us = now_us
        self.on_event = on_event
        self.trace = trace
        # Without a ring and a listener an entry is not even made: a long replay needs none.
        self.records = on_event is not None or trace.maxlen != 0
        self.limit_bytes = settings.limit_bytes(driver.capacity_bytes)
        self.statistics = Statistics()
        self.small = Pool(is_small=True)
        self.large = Pool(is_small=False)
        self.private_pools: dict[PoolId, PrivatePool] = {}
        self.segments: dict[int, Segment] = {}
        self.pending: list[Block] = []
        self.completed: list[Block] = []
        self.deferred: list[Block] = []
        self.deferred_done: list[Block] = []
        self.capturing: list[Collection[int]] = []
        self.current_stream: int | None = None
        self.reserved_bytes = 0
        self._segment_number = 0
        self._block_number = 0

    def pools(self) -> Iterator[Pool]:
        """Yield all pools, large before small in the default one, small before large in private ones, as they are released."""
        yield self.large
        yield self.small
        for private in self.private_pools.values():
            yield private.small
            yield private.large

    def pools_for_oom(self, *, is_small: bool) -> Iterator[Pool]:
        """Yield the halves of private pools that serve the default pool's requests when the driver has no memory left."""
        for private in self.private_pools.values():
            if private.serves_on_oom and private.holders:
                yield private.small if is_small else private.large

    def record(self, action: str, address: int, size_bytes: int, stream: int, pool_id: PoolId, frames: Frames) -> None:
        if not self.records:
            return
        entry = TraceEntry(action, address, size_bytes, stream, self.now_us(), pool_id, frames)
        self.trace.append(entry)
        if self.on_event is not None:
            self.on_event(entry)

    def new_segment(self, address: int, size_bytes: int, stream: int, pool: Pool, page_bytes: int = 0) -> Block:
        """Add a segment and return the one block that it is, which the caller takes or inserts."""
        self._segment_number += 1
        segment = Segment(address, size_bytes, stream, pool, self._segment_number, page_bytes)
        block = segment.first = self.new_block(segment, address, size_bytes, mapped=page_bytes == 0)
        self.segments[address] = segment
        return block

    def new_block(self, segment: Segment, address: int, size_bytes: int, *, mapped: bool = True) -> Block:
        """Return a block with the rank that the settings' release of torch gives it (see Settings.order)."""
        order = self.settings.order
        if order == "2.13":
            return Block(segment, address, size_bytes, segment.number, mapped)
        self._block_number += 1
        return Block(segment, address, size_bytes, self._block_number if order == "2.12" else 0, mapped)

    def change_reserved(self, amount_bytes: int, pool: Pool) -> None:
        self.reserved_bytes += amount_bytes
        self.statistics.change_reserved(amount_bytes, pool.is_small, pool.id)

    def count_inactive_split(self, blocks: int, size_bytes: int, segment: Segment) -> None:
        """Count free blocks that share a segment; PyTorch leaves out expandable ones, whose free pages can be given back."""
        if not segment.is_expandable:
            self.statistics.inactive_split.change(blocks, segment.pool.is_small)
            self.statistics.inactive_split_bytes.change(size_bytes, segment.pool.is_small)

    def free_block(self, block: Block) -> None:
        """Put a block that nobody uses any more into its pool, merged with its idle neighbours."""
        segment = block.segment
        pool = segment.pool
        if self.records:
            self.record("free_completed", block.address, block.requested_bytes, segment.stream, pool.id, block.frames)
        statistics, is_small = self.statistics, pool.is_small
        statistics.active.decrease(1, is_small)
        statistics.active_bytes.decrease(block.size_bytes, is_small)
        statistics.requested_bytes.decrease(block.requested_bytes, is_small)
        block.frames = ()
        block.is_idle = True
        before_bytes = try_merge(block, block.prev)
        after_bytes = try_merge(block, block.next)
        pool.insert_free(block)
        if segment.is_expandable:
            return
        blocks, size_bytes = -(before_bytes > 0) - (after_bytes > 0), -before_bytes - after_bytes
        if block.prev is not None or block.next is not None:
            blocks, size_bytes = blocks + 1, size_bytes + block.size_bytes
        self.count_inactive_split(blocks, size_bytes, segment)

    def in_capture(self, stream: int | None) -> bool:
        """Return whether a call with this current stream is part of a capture, so that nothing may be waited for."""
        return bool(self.capturing) and (stream is None or any(stream in streams for streams in self.capturing))

    def free_when_streams_are_done(self, block: Block) -> None:
        """Let the free of a block wait for the streams that use it too."""
        if self.in_capture(self.current_stream):
            self.deferred.append(block)
        else:
            self._wait_for_uses(block, self.pending)

    def complete_uses(self) -> None:
        """Note that the work of all streams is done; the next poll sees it."""
        self.completed += self.pending
        self.pending = []
        self.deferred_done += self.deferred
        self.deferred = []

    def poll(self) -> None:
        """Free the blocks whose last pending use is completed (process_events); not to be called in a capture."""
        if self.deferred or self.deferred_done:
            self._end_deferral()
        if self.completed:
            completed, self.completed = self.completed, []
            self._finish(completed)

    def wait(self, pool_id: PoolId | None = None) -> None:
        """Wait until the pending uses, of one pool or of all, are completed, and free those blocks."""
        self.statistics.num_sync_all_streams += 1
        self._end_deferral()
        uses = self.completed + self.pending
        self.completed, self.pending = [], []
        if pool_id is not None:
            self.pending = [block for block in uses if block.segment.pool.id != pool_id]
            uses = [block for block in uses if block.segment.pool.id == pool_id]
        self._finish(uses)

    def _end_deferral(self) -> None:
        """Do outside of a capture what its frees put off; the uses recorded in it are known to be done."""
        deferred = [(block, self.completed) for block in self.deferred_done]
        deferred += [(block, self.pending) for block in self.deferred]
        self.deferred_done, self.deferred = [], []
        for block, waiting in deferred:
            assert block.stream_uses is not None, "a deferred block without another stream's use"
            block.stream_uses -= block.capture_uses or set()
            block.capture_uses = None
            if block.stream_uses:
                self._wait_for_uses(block, waiting)
            else:
                block.stream_uses = None
                self.free_block(block)

    def _wait_for_uses(self, block: Block, waiting: list[Block]) -> None:
        assert block.stream_uses, "a pending block without another stream's use"
        block.events = len(block.stream_uses)
        waiting += [block] * block.events
        block.stream_uses = None

    def _finish(self, uses: list[Block]) -> None:
        for block in uses:
            block.events -= 1
            if not block.events:
                self.free_block(block)
