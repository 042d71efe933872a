"""The invariants of the allocator's state, for tests to check after every operation."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from vramscope.allocator.blocks import Block, Segment
from vramscope.allocator.driver import PAGE_BYTES
from vramscope.allocator.rounding import MIN_BLOCK_BYTES
from vramscope.allocator.state import State


def validate(state: State, allocated: Mapping[int, Block]) -> None:
    """Raise AssertionError unless blocks, sets, driver and counters of ``state`` agree; ``allocated`` is by address."""
    blocks = [block for segment in state.segments.values() for block in segment.blocks()]
    for segment in state.segments.values():
        _validate_segment(segment)
    assert {b.address for b in blocks if b.allocated} == set(allocated), "the blocks handed out"
    _validate_pending(state, blocks)
    _validate_sets(state, blocks)
    _validate_counters(state, blocks)


def _validate_segment(segment: Segment) -> None:
    blocks = list(segment.blocks())
    ends = [block.end for block in blocks]
    assert [block.address for block in blocks] == [segment.address, *ends[:-1]], "a gap between blocks"
    assert ends[-1] == segment.address + segment.size_bytes, "blocks that do not fill their segment"
    assert [block.prev for block in blocks] == [None, *blocks[:-1]], "the links of blocks"
    for block, behind in pairwise(blocks):
        mergeable = block.is_idle and behind.is_idle and block.mapped == behind.mapped
        assert not mergeable, f"idle neighbours at {block.address:#x} that were not merged"
    for block in blocks:
        _validate_block(segment, block)


def _validate_block(segment: Segment, block: Block) -> None:
    assert block.segment is segment
    assert block.size_bytes > 0
    assert block.size_bytes % MIN_BLOCK_BYTES == 0
    assert not (block.is_idle and (block.allocated or block.events or block.stream_uses)), "an idle block in use"
    assert block.is_idle or block.requested_bytes <= block.size_bytes, "a block smaller than its request"
    if not block.mapped:
        assert segment.is_expandable
        assert block.is_idle
        assert (block.address - segment.address) % segment.page_bytes == 0
        assert block.size_bytes % segment.page_bytes == 0


def _validate_pending(state: State, blocks: list[Block]) -> None:
    waiting, deferred = state.completed + state.pending, state.deferred + state.deferred_done
    pending = [b for b in blocks if not b.is_idle and not b.allocated]
    assert all(waiting.count(b) == b.events for b in pending), "the events of pending blocks"
    assert len(waiting) == sum(b.events for b in blocks), "pending uses of blocks that are gone"
    assert all(b.events or b in deferred for b in pending), "a pending block that waits for nothing"
    assert all(b.stream_uses and not b.is_idle and not b.allocated for b in deferred), "a deferred block"


def _validate_sets(state: State, blocks: list[Block]) -> None:
    pools = list(state.pools())
    for stream in {segment.stream for segment in state.segments.values()}:
        for entries in (pool.free.of_stream(stream) for pool in pools):
            assert entries == sorted(entries), "a free set out of order"
            assert all(entry[:3] == (entry[3].size_bytes, entry[3].rank, entry[3].address) for entry in entries)
    free = [id(block) for pool in pools for block in pool.free]
    unmapped = [id(block) for pool in pools for block in pool.unmapped]
    assert sorted(free) == sorted(id(b) for b in blocks if b.mapped and b.is_idle), "the free sets"
    assert sorted(unmapped) == sorted(id(b) for b in blocks if not b.mapped), "the unmapped sets"
    assert all(block.segment.pool is pool for pool in pools for block in pool.free), "a block in another's pool"


def _validate_counters(state: State, blocks: list[Block]) -> None:
    reserved = sum(block.size_bytes for block in blocks if block.mapped)
    assert state.reserved_bytes == reserved
    # A large segment size that is not whole pages makes the driver give a little more than was asked for.
    assert reserved <= state.driver.used_bytes <= reserved + len(state.segments) * PAGE_BYTES
    assert state.driver.free_bytes >= 0, "the driver gave more than it has"
    statistics = state.statistics
    for half in ("small", "large"):
        own = [b for b in blocks if b.mapped and b.segment.pool.is_small == (half == "small")]
        live = [b for b in own if b.allocated]
        active = [b for b in own if not b.is_idle]
        split = [b for b in own if b.is_idle and b.is_split and not b.segment.is_expandable]
        expected = {
            "allocation": len(live),
            "allocated_bytes": sum(b.size_bytes for b in live),
            "active": len(active),
            "active_bytes": sum(b.size_bytes for b in active),
            "requested_bytes": sum(b.requested_bytes for b in active),
            "inactive_split": len(split),
            "inactive_split_bytes": sum(b.size_bytes for b in split),
            "reserved_bytes": sum(b.size_bytes for b in own),
            "segment": len({id(b.segment) for b in own if not b.segment.is_expandable}),
        }
        found = {name: getattr(getattr(statistics, name), half).current for name in expected}
        assert found == expected, f"the counters of the {half} pool"
