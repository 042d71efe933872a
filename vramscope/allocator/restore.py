"""Continues from a map of segments and blocks: what it tells is taken over, and what it does not is assumed and named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from vramscope.agent.vocabulary import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE
from vramscope.allocator.blocks import DEFAULT_POOL, Block, Pool, PoolId
from vramscope.allocator.driver import PAGE_BYTES
from vramscope.allocator.expandable import address_space_bytes, page_size
from vramscope.allocator.state import PrivatePool, State
from vramscope.errors import BadInputError
from vramscope.units import format_address, format_bytes

if TYPE_CHECKING:  # numpy's, which a job on a simulated GPU does without
    from vramscope.columns import DeviceMap

# A pending block's use by another stream: a map does not tell by which.
_UNKNOWN_STREAM = -1


class _Record(NamedTuple):
    """A segment of the map, or a mapped range of one, with its blocks as (bytes, requested bytes, state)."""

    address: int
    size_bytes: int
    stream: int
    pool_id: PoolId
    is_small: bool
    is_expandable: bool
    blocks: list[tuple[int, int, int]]

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    def shares_segment_with(self, other: _Record) -> bool:
        """Return whether both may be ranges of one expandable segment."""
        mine, others = ((r.stream, r.pool_id, r.is_small, r.is_expandable) for r in (self, other))
        return self.is_expandable and mine == others


def restore(state: State, found: DeviceMap, device_free_bytes: int | None) -> dict[int, Block]:
    """Fill a fresh state with the segments and blocks of ``found``; return those that are allocated, by address.

    Raises BadInputError where segments overlap, or hold more than the card has.
    """
    records = list(_records(found))
    for before, behind in pairwise(records):
        if behind.address < before.end:
            raise BadInputError(
                f"the segments at {format_address(before.address)} and {format_address(behind.address)} overlap"
            )
    reserved_bytes = sum(record.size_bytes for record in records)
    if reserved_bytes > state.driver.capacity_bytes:
        raise BadInputError(
            f"the segments hold {format_bytes(reserved_bytes)}, more than a card of"
            f" {format_bytes(state.driver.capacity_bytes)}"
        )
    allocated: dict[int, Block] = {}
    for group in _segments(state, records):
        _restore_segment(state, group, allocated)
    if device_free_bytes is not None:
        state.driver.other_bytes = max(
            0, state.driver.capacity_bytes - state.driver.used_bytes - max(0, device_free_bytes)
        )
    return allocated


def doubts(state: State, *, knows_free: bool) -> tuple[str, ...]:
    """Return what a restored state assumes because no map tells it, one line each."""
    segments = list(state.segments.values())
    places = [(id(segment.pool), segment.stream) for segment in segments if not segment.is_expandable]
    found = [
        (True, "counters, peaks and what other streams use of live blocks before the map are not known"),
        (
            not knows_free,
            "what the driver has free is not known: all that this process does not reserve is taken as free",
        ),
        (
            len(places) > len(set(places)),
            "the order in which segments were made is not known: of equal free blocks that at the lower address is used first",
        ),
        (
            any(segment.is_expandable for segment in segments),
            "the address space of expandable segments is not known: each is taken to begin at its first mapped page",
        ),
        (bool(state.pending), "which streams pending frees wait for is not known: each is taken to wait for one"),
        (
            bool(state.private_pools),
            "who holds private pools and with which options is not known: they are taken as held",
        ),
        (
            state.settings.garbage_collection_threshold > 0,
            "how long cached segments went unused is not known: all are taken as new to garbage collection",
        ),
    ]
    return tuple(line for holds, line in found if holds)


def _records(found: DeviceMap) -> Iterator[_Record]:
    """Yield the records of a map by address."""
    columns = (
        found.segment_address,
        found.segment_total_bytes,
        found.segment_stream,
        found.segment_pool_a,
        found.segment_pool_b,
        found.segment_is_small,
        found.segment_is_expandable,
    )
    blocks = list(
        zip(found.block_bytes.tolist(), found.block_requested_bytes.tolist(), found.block_state.tolist(), strict=True)
    )
    ranges = pairwise(found.segment_first_block.tolist())
    rows = zip(*(column.tolist() for column in columns), ranges, strict=True)
    for address, size_bytes, stream, pool_a, pool_b, is_small, is_expandable, (first, end) in rows:
        yield _Record(
            address, size_bytes, stream, (pool_a, pool_b), bool(is_small), bool(is_expandable), blocks[first:end]
        )


def _segments(state: State, records: Sequence[_Record]) -> Iterator[tuple[list[_Record], int]]:
    """Yield the records of each segment, and its end: that of its address space where it is expandable.

    Ranges of one stream and pool that follow each other within the size of an address space belong together.
    """
    group: list[_Record] = []
    for record in records:
        if group and not (group[0].shares_segment_with(record) and record.end <= _address_space_end(state, group[0])):
            yield group, min(_address_space_end(state, group[0]), record.address)
            group = []
        group.append(record)
    if group:
        yield group, _address_space_end(state, group[0])


def _address_space_end(state: State, first: _Record) -> int:
    if not first.is_expandable:
        return first.end
    page_bytes = page_size(state.settings, _pool(state, first))
    return max(first.end, first.address + address_space_bytes(state.driver.capacity_bytes, page_bytes))


def _pool(state: State, record: _Record) -> Pool:
    owner: State | PrivatePool = state
    if record.pool_id != DEFAULT_POOL:
        owner = state.private_pools.setdefault(record.pool_id, PrivatePool(record.pool_id))
    return owner.small if record.is_small else owner.large


def _restore_segment(state: State, group_and_end: tuple[list[_Record], int], allocated: dict[int, Block]) -> None:
    group, end = group_and_end
    first, pool = group[0], _pool(state, group[0])
    page_bytes = _page_bytes(state, group) if first.is_expandable else 0
    size_bytes = (end - first.address) // page_bytes * page_bytes if page_bytes else first.size_bytes
    last = state.new_segment(first.address, size_bytes, first.stream, pool, page_bytes)
    segment = last.segment
    last.size_bytes, last.mapped = 0, True
    for record in group:
        if record.address > last.end:
            last = _append(state, last, record.address - last.end, mapped=False)
            pool.unmapped.insert(last)
        for block_bytes, requested_bytes, block_state in record.blocks:
            # Free neighbours would have been merged.
            if block_state == INACTIVE and last.is_idle and last.mapped and last.size_bytes:
                last.size_bytes += block_bytes
                continue
            last = _append(state, last, block_bytes, mapped=True)
            _occupy(state, last, requested_bytes, block_state, allocated)
    if last.end < first.address + size_bytes:
        last = _append(state, last, first.address + size_bytes - last.end, mapped=False)
        pool.unmapped.insert(last)
    for block in segment.blocks():
        if block.is_idle and block.mapped:
            pool.insert_free(block)
            if block.is_split:
                state.count_inactive_split(1, block.size_bytes, segment)
    _count_segment(state, group, size_bytes, page_bytes)


def _append(state: State, last: Block, size_bytes: int, *, mapped: bool) -> Block:
    """Return the next block of a segment; its first one, still without a size, becomes that."""
    if not last.size_bytes:
        last.size_bytes, last.mapped = size_bytes, mapped
        return last
    block = state.new_block(last.segment, last.end, size_bytes, mapped=mapped)
    block.link_between(last, None)
    return block


def _occupy(state: State, block: Block, requested_bytes: int, block_state: int, allocated: dict[int, Block]) -> None:
    block.requested_bytes = requested_bytes
    if block_state == INACTIVE:
        return
    statistics, is_small = state.statistics, block.segment.pool.is_small
    block.is_idle = False
    statistics.active.increase(1, is_small)
    statistics.active_bytes.increase(block.size_bytes, is_small)
    statistics.requested_bytes.increase(requested_bytes, is_small)
    if block_state == ACTIVE_PENDING_FREE:
        block.stream_uses = {_UNKNOWN_STREAM}
        state.free_when_streams_are_done(block)
    elif block_state == ACTIVE_ALLOCATED:
        block.allocated = True
        allocated[block.address] = block
        statistics.allocation.increase(1, is_small)
        statistics.allocated_bytes.increase(block.size_bytes, is_small)
        if state.settings.is_oversize(block.size_bytes):
            statistics.oversize_allocations.increase(1)


def _page_bytes(state: State, group: Sequence[_Record]) -> int:
    """Return the page size that the ranges agree with: the settings', or the driver's where the job had another one."""
    edges = [edge - group[0].address for record in group for edge in (record.address, record.end)]
    for page_bytes in (page_size(state.settings, _pool(state, group[0])), PAGE_BYTES):
        if all(edge % page_bytes == 0 for edge in edges):
            return page_bytes
    raise BadInputError(
        f"the expandable segment at {format_address(group[0].address)} has ranges that are not whole pages"
    )


def _count_segment(state: State, group: Sequence[_Record], size_bytes: int, page_bytes: int) -> None:
    pool = _pool(state, group[0])
    mapped_bytes = sum(record.size_bytes for record in group)
    state.change_reserved(mapped_bytes, pool)
    if page_bytes:
        state.driver.adopt_reservation(group[0].address, size_bytes)
        state.driver.used_bytes += mapped_bytes
        return
    state.driver.adopt(group[0].address, size_bytes)
    state.statistics.segment.increase(1, pool.is_small)
    if state.settings.is_oversize(size_bytes):
        state.statistics.oversize_segments.increase(1)
