"""What a job asked of its allocator, in order, as its trace tells it: requests, frees, and releases of cached memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.allocator import PoolId
from vramscope.columns import U8, U64
from vramscope.snapshot.columns import ACTION_CODE, I32, I64, Events
from vramscope.trace.columns import BEFORE, Bools, DeviceTrace

# The kinds of operations. REQUEST was served when it was recorded and FAILED was not. RELEASE is memory that went back to the
# driver right before a request got new memory or failed: the program may have asked for it (empty_cache), or the allocator did it
# for that request. Only a replay can tell. DROP_POOL is a private pool that lost its holder.
REQUEST, FREE, FAILED, EMPTY_CACHE, RELEASE, DROP_POOL = range(6)

_DEFAULT = (0, 0)
_GIVEN_BACK = (ACTION_CODE["segment_free"], ACTION_CODE["segment_unmap"])
_OF_A_REQUEST = (ACTION_CODE["segment_alloc"], ACTION_CODE["segment_map"], ACTION_CODE["oom"])
_SILENT = (ACTION_CODE["annotate"], ACTION_CODE["snapshot"])


@dataclass(frozen=True, eq=False)
class Operations:
    """N operations in the order of their events; all columns have shape (N,).

    ``slot`` is the place among the trace's allocations of what is requested or freed, -1 elsewhere; ``size_bytes`` the request (of
    one that failed, as it was rounded), 0 elsewhere. ``pool`` is an index of ``pools``, whose first is the default one.
    ``event`` of a free is the one with which its memory could be used again. ``doubts`` are lines about what the trace leaves open.
    """

    kind: U8
    size_bytes: U64
    stream: U64
    slot: I64
    event: I64
    pool: I32
    pools: tuple[PoolId, ...]
    doubts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    def settled(self, own: I64) -> Operations:
        """Return them with each RELEASE as a call of empty_cache, but for those at ``own``, which the allocator did by itself."""
        kind = np.where(self.kind == RELEASE, EMPTY_CACHE, self.kind).astype(np.uint8)
        kept = np.ones(len(self), np.bool_)
        kept[own] = False
        return replace(
            self,
            kind=kind[kept],
            size_bytes=self.size_bytes[kept],
            stream=self.stream[kept],
            slot=self.slot[kept],
            event=self.event[kept],
            pool=self.pool[kept],
        )


class _Rows(NamedTuple):
    """Operations of one kind, as columns."""

    kind: int
    event: I64
    slot: I64
    size_bytes: U64
    pool: I32


def operations_of(trace: DeviceTrace) -> Operations:
    """Return what the trace tells. It tells nothing where the trace contradicts the final state: then N is 0.

    Frees that waited for other streams are taken as done when they completed. Frees of blocks from before the trace have the slots of
    these. Calls of empty_cache leave an event only where they released something.
    """
    allocations, events = trace.allocations, trace.events
    pool_of_event, pools = _pools(trace)
    asked = np.flatnonzero((allocations.first_event > BEFORE) & (allocations.requested_bytes > 0))
    freed = np.flatnonzero(allocations.last_event < len(events))
    failed = events.oom_event.astype(np.int64)
    if trace.contradiction is not None:
        failed = failed[:0]
    first = allocations.first_event[asked]
    rows = [
        _Rows(REQUEST, first, asked, allocations.requested_bytes[asked], pool_of_event[first]),
        _plain(FREE, allocations.last_event[freed], slot=freed),
        _Rows(FAILED, failed, np.full(len(failed), -1), events.size_bytes[failed], pool_of_event[failed]),
    ]
    if trace.contradiction is None:
        rows += _releases(events, pool_of_event)
    event = np.concatenate([row.event for row in rows])
    kind = np.concatenate([np.full(len(row.event), row.kind, np.uint8) for row in rows])
    # Of one event's operations, a pool is dropped before all cached memory is released.
    order = np.lexsort((kind != DROP_POOL, event))
    return Operations(
        kind=kind[order],
        size_bytes=np.concatenate([row.size_bytes for row in rows])[order],
        stream=events.stream[event[order]],
        slot=np.concatenate([row.slot for row in rows])[order],
        event=event[order],
        pool=np.concatenate([row.pool for row in rows])[order],
        pools=pools,
        doubts=_doubts(trace, pools, kind),
    )


def _plain(kind: int, event: I64, *, slot: I64 | None = None, pool: I32 | None = None) -> _Rows:
    zeros = np.zeros(len(event), np.uint64)
    nothing, default = np.full(len(event), -1), np.zeros(len(event), np.int32)
    return _Rows(kind, event, nothing if slot is None else slot, zeros, default if pool is None else pool)


def _pools(trace: DeviceTrace) -> tuple[I32, tuple[PoolId, ...]]:
    """Return the pool of each event as an index, and the pools. Before torch 2.12 it is that of the final segment there, if any."""
    events, final = trace.events, trace.final
    if events.pool_a is not None and events.pool_b is not None:
        pairs = np.stack([events.pool_a, events.pool_b], axis=1)
    else:
        pairs = np.zeros((len(events), 2), np.uint64)
        place = np.searchsorted(final.segment_address, events.address, side="right") - 1
        inside = np.flatnonzero(place >= 0)
        ends = final.segment_address[place[inside]] + final.segment_total_bytes[place[inside]]
        inside = inside[events.address[inside] < ends]
        pairs[inside, 0], pairs[inside, 1] = final.segment_pool_a[place[inside]], final.segment_pool_b[place[inside]]
    if not np.any(pairs):
        return np.zeros(len(events), np.int32), (_DEFAULT,)
    found, inverse = np.unique(np.concatenate([np.zeros((1, 2), np.uint64), pairs]), axis=0, return_inverse=True)
    # (0, 0) is the least pair of all.
    return inverse.reshape(-1)[1:].astype(np.int32), tuple((a, b) for a, b in found.tolist())


def _releases(events: Events, pool_of_event: I32) -> list[_Rows]:
    """Return a row for each run of memory that went back to the driver: of the default pool, and of each private one in it."""
    gone = np.flatnonzero(np.isin(events.action, _GIVEN_BACK))
    spoken = np.flatnonzero(~np.isin(events.action, (*_GIVEN_BACK, *_SILENT)))
    # What follows each of them; those that the same event follows are one run.
    behind = np.searchsorted(spoken, gone)
    firsts = np.flatnonzero(np.diff(behind, prepend=-1))
    runs: list[tuple[int, int, int]] = []
    for low, high in pairwise([*firsts.tolist(), len(gone)]):
        follower = int(spoken[behind[low]]) if behind[low] < len(spoken) else None
        is_for_a_request = follower is not None and events.action[follower] in _OF_A_REQUEST
        for pool in np.unique(pool_of_event[gone[low:high]]).tolist():
            kind = DROP_POOL if pool else RELEASE if is_for_a_request else EMPTY_CACHE
            runs.append((kind, int(gone[high - 1]), pool))
    rows = []
    for kind in (EMPTY_CACHE, RELEASE, DROP_POOL):
        own = [(event, pool) for found, event, pool in runs if found == kind]
        event, pool = np.array([row[0] for row in own], np.int64), np.array([row[1] for row in own], np.int32)
        rows.append(_plain(kind, event, pool=pool))
    return rows


def _doubts(trace: DeviceTrace, pools: tuple[PoolId, ...], kind: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    allocations, end = trace.allocations, trace.event_count
    waited: Bools = (allocations.free_event < end) & (allocations.last_event > allocations.free_event + 1)
    knows_pools = trace.events.pool_a is not None
    found = [
        (
            int(np.count_nonzero(waited)),
            "{} frees waited for other streams: their memory comes back when it did, also where a replay would wait for it",
        ),
        (len(pools) - 1, "{} private pools: when they began to be held, their options and captures are not recorded"),
        (
            len(pools) - 1 if not knows_pools else 0,
            "the pools of events are not recorded: those of the final segments at the same addresses are taken",
        ),
        (
            int(np.count_nonzero(kind == RELEASE)),
            "{} times cached memory was released right before new memory was taken: as a call of empty_cache, unless the allocator"
            " is seen to do it by itself",
        ),
        (
            int(np.count_nonzero(allocations.requested_bytes == 0)),
            "{} allocations whose requests are not known, or 0, are left out",
        ),
    ]
    return tuple(line.format(count) for count, line in found if count)
