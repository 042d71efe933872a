"""The caching allocator of one device: malloc, free, streams, pools and captures."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from vramscope.allocator import release, search, serving
from vramscope.allocator.blocks import DEFAULT_POOL, Block, Frames, Pool, PoolId
from vramscope.allocator.driver import Driver
from vramscope.allocator.out_of_memory import out_of_memory
from vramscope.allocator.prospect import Fit, LargestFit, Prospect
from vramscope.allocator.restore import doubts, restore
from vramscope.allocator.rounding import SMALL_LIMIT_BYTES, round_size, segment_size
from vramscope.allocator.settings import Settings
from vramscope.allocator.snapshot import segment_dicts, snapshot_dict
from vramscope.allocator.state import PrivatePool, State, TraceEntry
from vramscope.allocator.validation import validate

if TYPE_CHECKING:  # numpy's, which a job on a simulated GPU does without
    from vramscope.columns import DeviceMap

_DEFAULTS = Settings()


def _unix_us() -> int:
    return time.time_ns() // 1000


class Allocator:
    """PyTorch's CUDA caching allocator (2.14, native) over a pretend driver of ``capacity_bytes``.

    ``other_bytes`` of the capacity are held by other processes; ``other_processes`` names those of them that NVML knows (bytes
    by process id). ``clock`` gives the µs of trace entries, each of which goes to ``on_event`` and into a ring of
    ``trace_max_entries``; with neither, none is made. Not thread-safe.
    """

    def __init__(
        self,
        capacity_bytes: int,
        settings: Settings = _DEFAULTS,
        *,
        device: int = 0,
        other_bytes: int = 0,
        other_processes: Mapping[int, int] | None = None,
        clock: Callable[[], int] = _unix_us,
        on_event: Callable[[TraceEntry], None] | None = None,
        trace_max_entries: int = 100_000,
    ) -> None:
        driver = Driver(capacity_bytes, device=device, other_bytes=other_bytes, other_processes=other_processes)
        self._state = State(device, driver, settings, clock, on_event, deque(maxlen=trace_max_entries))
        self._allocated: dict[int, Block] = {}
        # What from_snapshot() had to assume, one line each.
        self.doubts: tuple[str, ...] = ()
        # Where requests go instead of the default pool: the last one that takes the stream (None takes all).
        self._diverted_to: list[tuple[PoolId, Collection[int] | None]] = []

    @classmethod
    def from_snapshot(
        cls,
        found: DeviceMap,
        settings: Settings = _DEFAULTS,
        *,
        capacity_bytes: int,
        device_free_bytes: int | None = None,
        clock: Callable[[], int] = _unix_us,
        on_event: Callable[[TraceEntry], None] | None = None,
        trace_max_entries: int = 0,
    ) -> Allocator:
        """Return an allocator that continues from a map of segments and blocks, on a card of ``capacity_bytes``.

        ``device_free_bytes`` is what the driver has left, None where that is not known. What else no map tells is assumed, and
        named in :attr:`doubts`. New segments get addresses of the pretend driver. Raises BadInputError where segments
        overlap, or hold more than the card has.
        """
        allocator = cls(
            capacity_bytes,
            settings,
            device=found.device,
            clock=clock,
            on_event=on_event,
            trace_max_entries=trace_max_entries,
        )
        allocator._allocated = restore(allocator._state, found, device_free_bytes)
        allocator.doubts = doubts(allocator._state, knows_free=device_free_bytes is not None)
        return allocator

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
        state = self._state
        if not state.capturing or not state.in_capture(stream):
            state.poll()
        settings = state.settings
        block_bytes = round_size(size_bytes, settings.roundup_power2_divisions)
        pool = self._pool(block_bytes, stream)
        block = serving.take_cached(state, pool, stream, block_bytes, expandable=settings.expandable_segments)
        if block is None:
            segment_bytes = segment_size(block_bytes, settings.large_segment_bytes)
            request = search.Request(size_bytes, block_bytes, segment_bytes, stream, pool, frames)
            block = serving.take_new(state, request)
            if block is None:
                raise out_of_memory(state, request)
        # A block of another pool, which serves on out-of-memory, is treated as if expandable segments were off.
        is_expandable = settings.expandable_segments and block.segment.pool is pool
        if search.should_split(settings, block, block_bytes, expandable=is_expandable):
            block = serving.split(state, block, block_bytes)
        elif block.prev is not None or block.next is not None:
            state.count_inactive_split(-1, -block.size_bytes, block.segment)
        serving.hand_out(state, block, size_bytes, frames)
        self._allocated[block.address] = block
        return block.address

    def free(self, address: int) -> None:
        """Free the block at ``address``; where other streams used it, it stays pending. Raises KeyError for another address."""
        state = self._state
        block = self._allocated.pop(address)
        block.allocated = False
        segment = block.segment
        is_small = segment.pool.is_small
        state.statistics.allocation.decrease(1, is_small)
        state.statistics.allocated_bytes.decrease(block.size_bytes, is_small)
        if state.settings.is_oversize(block.size_bytes):
            state.statistics.oversize_allocations.decrease(1)
        if state.records:
            state.record(
                "free_requested", address, block.requested_bytes, segment.stream, segment.pool.id, block.frames
            )
        if block.stream_uses is None:
            state.free_block(block)
        else:
            state.free_when_streams_are_done(block)

    def record_stream(self, address: int, stream: int) -> None:
        """Note that ``stream`` uses the block too, so that its free has to wait for that stream."""
        block = self._allocated[address]
        if stream == block.segment.stream:
            return
        block.stream_uses = (block.stream_uses or set()) | {stream}
        if self._state.in_capture(self._state.current_stream):
            block.capture_uses = (block.capture_uses or set()) | {stream}

    def complete_events(self) -> None:
        """Let all streams finish their work: pending blocks become free at the next malloc, as PyTorch polls only there."""
        self._state.complete_uses()

    def empty_cache(self, pool_id: PoolId | None = None) -> None:
        """Give cached memory back to the driver: all of it, or that of one private pool which nobody holds."""
        if pool_id is None:
            release.release_cached(self._state, in_capture=self._state.in_capture(self._state.current_stream))
        else:
            release.release_private(self._state, pool_id)

    def hold_pool(self, pool_id: PoolId, *, no_split: bool = False, use_on_oom: bool = False) -> None:
        """Add a holder (a MemPool object or a graph) to a private pool, which the first one creates with these options."""
        if pool_id == DEFAULT_POOL:
            raise ValueError("(0, 0) is the default pool")
        private = self._state.private_pools.get(pool_id)
        if private is None:
            self._state.private_pools[pool_id] = PrivatePool(pool_id, splits=not no_split, serves_on_oom=use_on_oom)
        else:
            private.holders += 1

    def release_pool(self, pool_id: PoolId) -> None:
        """Take a holder away; without one, the pool's cached segments are given back by the next release.

        A MemPool that goes away does this and then ``empty_cache(pool_id)``.
        """
        private = self._state.private_pools[pool_id]
        if not private.holders:
            raise ValueError(f"nobody holds the pool {pool_id}")
        private.holders -= 1

    def begin_pool(self, pool_id: PoolId, streams: Collection[int] | None = None) -> None:
        """Serve requests, of ``streams`` or of all, from a private pool until the matching ``end_pool()``.

        Raises KeyError for an unknown pool.
        """
        if pool_id not in self._state.private_pools:
            raise KeyError(pool_id)
        self._diverted_to.append((pool_id, streams))

    def end_pool(self) -> None:
        self._diverted_to.pop()

    def begin_capture(self, pool_id: PoolId, streams: Collection[int]) -> None:
        """Begin to capture a graph on ``streams``, whose requests its private pool serves; the graph then holds that pool.

        Until ``end_capture()`` nothing that needs a synchronisation is done on them: no pending free is looked at, and no cached
        memory is released for a request. Calls without a stream count as theirs, unless ``use_stream`` says otherwise.
        """
        self.hold_pool(pool_id)
        self.begin_pool(pool_id, streams)
        self._state.capturing.append(streams)

    def end_capture(self) -> None:
        """End the capture that began last. A graph that goes away calls ``release_pool``."""
        self.end_pool()
        self._state.capturing.pop()

    def use_stream(self, stream: int | None) -> None:
        """Say which stream is current for free, record_stream and empty_cache: it matters only while a graph is captured.

        None is the captured one. For malloc it is the stream of the request.
        """
        self._state.current_stream = stream

    def prospect(self, stream: int = 0, pool_id: PoolId | None = None) -> Prospect:
        """Return what tells how requests of a stream would be served now; it holds until the allocator is used again.

        They go to ``pool_id`` or, where that is None, to the pool that serves the stream now. Pending frees are looked at first, as
        each malloc does; nothing else changes. Raises KeyError for an unknown pool.
        """
        if not self._state.in_capture(stream):
            self._state.poll()
        return Prospect(self._state, stream, self.pool_of(stream) if pool_id is None else pool_id)

    def fit(self, size_bytes: int, stream: int = 0, pool_id: PoolId | None = None) -> Fit:
        """Return how one request would be served, without serving it; see :meth:`prospect`."""
        return self.prospect(stream, pool_id).fit(size_bytes)

    def largest_fit(self, stream: int = 0, pool_id: PoolId | None = None) -> LargestFit:
        """Return the largest request that would be served, and how; see :meth:`prospect`."""
        return self.prospect(stream, pool_id).largest()

    def pool_of(self, stream: int) -> PoolId:
        """Return the pool that serves the requests of a stream now."""
        for pool_id, streams in reversed(self._diverted_to):
            if streams is None or stream in streams:
                return pool_id
        return DEFAULT_POOL

    def memory_stats(self) -> dict[str, Any]:
        """Return the counters in the shape of ``torch._C._cuda_memoryStats(device)``."""
        return self._state.statistics.as_dict(self.settings.max_split_size)

    def segments(self) -> list[dict[str, Any]]:
        """Return the segments in the form of ``torch.cuda.memory_snapshot()``, by address."""
        return segment_dicts(self._state)

    def snapshot(self) -> dict[str, Any]:
        """Return everything in the form of ``torch.cuda.memory._snapshot()``."""
        return snapshot_dict(self._state)

    def validate(self) -> None:
        """Raise AssertionError unless blocks, pools, driver and counters agree with each other."""
        validate(self._state, self._allocated)

    def _pool(self, block_bytes: int, stream: int) -> Pool:
        state = self._state
        pool_id = self.pool_of(stream) if self._diverted_to else DEFAULT_POOL
        owner = state if pool_id == DEFAULT_POOL else state.private_pools[pool_id]
        return owner.small if block_bytes <= SMALL_LIMIT_BYTES else owner.large
