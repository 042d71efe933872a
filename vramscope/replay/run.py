"""Replays what a job asked for on the simulated allocator, under any settings and capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from vramscope.allocator import OutOfMemory, PoolId, Settings, TraceEntry
from vramscope.allocator.blocks import DEFAULT_POOL
from vramscope.replay.operations import DROP_POOL, EMPTY_CACHE, FAILED, FREE, REQUEST, Operations
from vramscope.replay.recording import Recording
from vramscope.snapshot.columns import I64
from vramscope.trace.columns import BEFORE

_RANGES = 1000


class Failure(NamedTuple):
    """A request that was not served: its event in the recording, and what the driver had free then."""

    event: int
    size_bytes: int
    stream: int
    device_free_bytes: int


@dataclass(frozen=True, eq=False)
class Replay:
    """What came of a replay.

    ``stranded_at_peak_bytes`` is what was reserved and not active when most was reserved. ``retries`` and ``device_mallocs`` are
    PyTorch's num_alloc_retries and num_device_alloc. ``oom`` is the first request that failed; ``ran_through`` says that none
    failed which was served when it was recorded: at such a one the replay ends. ``reserved_bytes`` (P,) after
    ``reserved_event`` (P,) are at most 2,000 points: the least and the most of each of 1,000 ranges of operations.
    ``own_releases`` are the places of operations of the kind RELEASE that the allocator did by itself.
    """

    settings: Settings
    capacity_bytes: int
    peak_reserved_bytes: int
    peak_active_bytes: int
    stranded_at_peak_bytes: int
    retries: int
    device_mallocs: int
    oom: Failure | None
    ran_through: bool
    reserved_event: I64
    reserved_bytes: I64
    own_releases: I64


class Watcher(Protocol):
    """Is told what a replay does, in order."""

    def begin(self, place: int) -> None:
        """Take note of the operation that comes now."""

    def served(self, place: int, address: int) -> None:
        """Take note of the address that a request got."""

    def entry(self, entry: TraceEntry) -> None:
        """Take note of what the allocator records."""


def replay(recording: Recording, settings: Settings, capacity_bytes: int, watcher: Watcher | None = None) -> Replay:
    """Replay ``recording`` on a card with ``capacity_bytes`` for this process.

    A request that failed when it was recorded is freed at once where it is served now: nothing tells how long it would have lived.
    Raises BadInputError where the state before the trace does not fit on that card.
    """
    return _Run(recording, settings, capacity_bytes, watcher).all()


class _Run:
    """A replay on its way."""

    def __init__(self, recording: Recording, settings: Settings, capacity_bytes: int, watcher: Watcher | None) -> None:
        operations = recording.operations
        self._operations, self._watcher = operations, watcher
        # Lists: one number of an array at a time takes long.
        self._size_bytes, self._stream = operations.size_bytes.tolist(), operations.stream.tolist()
        self._pool = [operations.pools[pool] for pool in operations.pool.tolist()]
        self._requests = np.flatnonzero((operations.kind == REQUEST) | (operations.kind == FAILED))
        self._allocator = recording.allocator(settings, capacity_bytes, None if watcher is None else watcher.entry)
        # By slot; None of what does not lie in memory, as blocks from before a trace whose start is not known.
        self._address: list[int | None] = [None] * recording.slots
        self._held = {DEFAULT_POOL, *recording.start_pools}
        for slot, address in recording.start_addresses():
            self._address[slot] = address
        self._reserved = [self._allocator.reserved_bytes]
        self._most_reserved_bytes = self._stranded_bytes = 0
        self._look_at_peak()
        self._oom: Failure | None = None
        self._own_releases: list[int] = []

    def all(self) -> Replay:
        """Do all operations, or those up to a request that fails and did not when it was recorded."""
        operations, watcher, allocator = self._operations, self._watcher, self._allocator
        ran_through = True
        for place, (kind, slot) in enumerate(zip(operations.kind.tolist(), operations.slot.tolist(), strict=True)):
            if watcher is not None:
                watcher.begin(place)
            if kind == FREE:
                address = self._address[slot]
                if address is not None:
                    allocator.free(address)
            elif kind == REQUEST:
                address = self._address[slot] = self._malloc(place)
                ran_through = address is not None
            else:
                self._other(kind, place)
            self._reserved.append(allocator.reserved_bytes)
            self._look_at_peak()
            if not ran_through:
                break
        return self._result(ran_through)

    def _malloc(self, place: int) -> int | None:
        size_bytes, stream, pool_id = self._request_at(place)
        allocator = self._allocator
        try:
            if pool_id == DEFAULT_POOL:
                address = allocator.malloc(size_bytes, stream)
            else:
                allocator.begin_pool(pool_id)
                try:
                    address = allocator.malloc(size_bytes, stream)
                finally:
                    allocator.end_pool()
        except OutOfMemory as error:
            if self._oom is None:
                event = int(self._operations.event[place])
                self._oom = Failure(event, size_bytes, stream, error.device_free_bytes)
            return None
        if self._watcher is not None:
            self._watcher.served(place, address)
        return address

    def _request_at(self, place: int) -> tuple[int, int, PoolId]:
        """Return the size, stream and pool of a request; somebody holds the pool from here on."""
        pool_id = self._pool[place]
        if pool_id not in self._held:
            self._allocator.hold_pool(pool_id)
            self._held.add(pool_id)
        return self._size_bytes[place], self._stream[place], pool_id

    def _other(self, kind: int, place: int) -> None:
        if kind == FAILED:
            address = self._malloc(place)
            if address is not None:
                self._look_at_peak()
                self._allocator.free(address)
        elif kind == DROP_POOL:
            self._drop_pool(self._pool[place])
        elif kind == EMPTY_CACHE or not self._releases_by_itself(place):
            self._allocator.empty_cache()
        else:
            self._own_releases.append(place)

    def _drop_pool(self, pool_id: PoolId) -> None:
        if pool_id in self._held:
            self._allocator.release_pool(pool_id)
            self._allocator.empty_cache(pool_id)
            self._held.remove(pool_id)

    def _releases_by_itself(self, place: int) -> bool:
        """Return whether the next request would make the allocator give cached memory back."""
        following = int(np.searchsorted(self._requests, place))
        if following == len(self._requests):
            return False
        return self._allocator.fit(*self._request_at(int(self._requests[following]))).released_bytes > 0

    def _look_at_peak(self) -> None:
        """Note how much is stranded where more is reserved than ever."""
        reserved_bytes = self._allocator.reserved_bytes
        if reserved_bytes > self._most_reserved_bytes:
            active_bytes = self._allocator.memory_stats()["active_bytes"]["all"]["current"]
            self._most_reserved_bytes, self._stranded_bytes = reserved_bytes, reserved_bytes - active_bytes

    def _result(self, ran_through: bool) -> Replay:
        stats = self._allocator.memory_stats()
        event, reserved_bytes = _thinned(self._operations, np.array(self._reserved, np.int64))
        return Replay(
            settings=self._allocator.settings,
            capacity_bytes=self._allocator.capacity_bytes,
            peak_reserved_bytes=stats["reserved_bytes"]["all"]["peak"],
            peak_active_bytes=stats["active_bytes"]["all"]["peak"],
            stranded_at_peak_bytes=self._stranded_bytes,
            retries=stats["num_alloc_retries"],
            device_mallocs=stats["num_device_alloc"],
            oom=self._oom,
            ran_through=ran_through,
            reserved_event=event,
            reserved_bytes=reserved_bytes,
            own_releases=np.array(self._own_releases, np.int64),
        )


def _thinned(operations: Operations, reserved_bytes: I64) -> tuple[I64, I64]:
    """Return the least and the most of each range, in their order, with their events; BEFORE is that of the start."""
    event = np.concatenate([[BEFORE], operations.event])[: len(reserved_bytes)]
    if len(reserved_bytes) <= 2 * _RANGES:
        return event, reserved_bytes
    bounds = np.linspace(0, len(reserved_bytes), _RANGES + 1).astype(np.int64)
    kept = [
        begin + place
        for begin, part in zip(bounds.tolist(), np.split(reserved_bytes, bounds[1:-1]), strict=False)
        for place in sorted((int(part.argmin()), int(part.argmax())))
    ]
    return event[kept], reserved_bytes[kept]
