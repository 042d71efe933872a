"""Graph captures, and the options of MemPools."""

from __future__ import annotations

import pytest

from vramscope.allocator import Allocator, OutOfMemory
from vramscope.units import GIB, MIB

POOL, GRAPH = (0, 1), (0, 2)
CAPTURED, SIDE = 7, 9


def blocks(allocator: Allocator) -> list[tuple[int, str]]:
    """Return (MiB, state) of each block, by address."""
    return [(b["size"] // MIB, b["state"]) for segment in allocator.segments() for b in segment["blocks"]]


def pending(allocator: Allocator) -> int:
    return sum(state == "active_pending_free" for _, state in blocks(allocator))


def test_only_the_captured_stream_is_served_from_the_graphs_pool() -> None:
    allocator = Allocator(GIB)
    allocator.begin_capture(GRAPH, [CAPTURED])
    for stream in (CAPTURED, SIDE):
        allocator.malloc(20 * MIB, stream)
    allocator.end_capture()
    allocator.malloc(20 * MIB, CAPTURED)
    assert [segment["segment_pool_id"] for segment in allocator.segments()] == [GRAPH, (0, 0), (0, 0)]


def test_in_a_capture_no_pending_free_is_looked_at() -> None:
    # GIVEN a block whose free waits for a stream, which is done
    allocator = Allocator(GIB)
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, SIDE)
    allocator.free(address)
    allocator.complete_events()
    # WHEN a capture allocates
    allocator.begin_capture(GRAPH, [CAPTURED])
    allocator.malloc(20 * MIB, CAPTURED)
    # THEN it stays pending, until another stream allocates
    assert pending(allocator) == 1
    assert allocator.malloc(20 * MIB) == address
    allocator.validate()


def test_a_free_in_a_capture_waits_for_its_end_and_not_for_the_streams_recorded_in_it() -> None:
    # GIVEN two blocks, one of which another stream used before the capture, and both of which one uses in it
    allocator = Allocator(GIB)
    before, within = allocator.malloc(20 * MIB), allocator.malloc(30 * MIB)
    allocator.record_stream(before, SIDE)
    allocator.begin_capture(GRAPH, [CAPTURED])
    for address in (before, within):
        allocator.record_stream(address, CAPTURED)
        # WHEN they are freed in the capture
        allocator.free(address)
        allocator.validate()
    allocator.malloc(1, CAPTURED)
    assert pending(allocator) == 2
    # THEN after it the one is free, and the other waits for the stream from before
    allocator.end_capture()
    allocator.malloc(1)
    allocator.validate()
    assert pending(allocator) == 1
    allocator.complete_events()
    allocator.malloc(1)
    assert pending(allocator) == 0


def test_a_call_from_another_stream_is_not_part_of_the_capture() -> None:
    # GIVEN cached memory, and a capture
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(20 * MIB))
    allocator.begin_capture(GRAPH, [CAPTURED])
    # WHEN the cache is emptied from its stream
    allocator.empty_cache()
    # THEN nothing happens
    assert allocator.reserved_bytes == 20 * MIB
    # WHEN that is done from another one
    allocator.use_stream(SIDE)
    allocator.empty_cache()
    # THEN the memory is given back
    assert allocator.reserved_bytes == 0


def test_a_capture_runs_out_of_memory_without_releasing_what_is_cached() -> None:
    allocator = Allocator(100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.begin_capture(GRAPH, [CAPTURED])
    with pytest.raises(OutOfMemory):
        allocator.malloc(50 * MIB, CAPTURED)
    assert allocator.memory_stats()["num_alloc_retries"] == 0
    allocator.end_capture()
    allocator.malloc(50 * MIB)
    allocator.validate()


def test_a_graphs_pool_is_released_after_the_last_graph_that_shares_it() -> None:
    # GIVEN two graphs that share a pool, with what they allocated freed
    allocator = Allocator(GIB)
    for _ in range(2):
        allocator.begin_capture(GRAPH, [CAPTURED])
        allocator.free(allocator.malloc(20 * MIB, CAPTURED))
        allocator.end_capture()
    # WHEN one goes away, THEN the other keeps the pool
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 20 * MIB
    # WHEN the other one does too, THEN it is given back
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0
    allocator.validate()


def test_a_pool_without_splits_hands_out_whole_segments() -> None:
    allocator = Allocator(GIB)
    allocator.hold_pool(POOL, no_split=True)
    allocator.begin_pool(POOL)
    for size in (3 * MIB, 100):
        allocator.malloc(size)
    assert blocks(allocator) == [(20, "active_allocated"), (2, "active_allocated")]
    allocator.validate()


def test_a_pool_that_serves_on_out_of_memory_does_so_before_anything_is_released() -> None:
    # GIVEN a full device: cached blocks of a MemPool and of the default pool
    allocator = Allocator(100 * MIB)
    allocator.hold_pool(POOL, use_on_oom=True)
    allocator.begin_pool(POOL)
    spare = allocator.malloc(60 * MIB)
    allocator.free(spare)
    allocator.end_pool()
    allocator.free(allocator.malloc(40 * MIB))
    # WHEN the default pool needs more than it has
    # THEN it gets the front of the other's block
    assert allocator.malloc(50 * MIB) == spare
    assert blocks(allocator) == [(50, "active_allocated"), (10, "inactive"), (40, "inactive")]
    allocator.validate()


def test_a_pool_that_is_gone_serves_nobody() -> None:
    allocator = Allocator(100 * MIB)
    allocator.hold_pool(POOL, use_on_oom=True)
    allocator.begin_pool(POOL)
    live = allocator.malloc(30 * MIB)
    allocator.free(allocator.malloc(50 * MIB))
    allocator.end_pool()
    allocator.release_pool(POOL)
    # Its cached segment is released for the request instead.
    allocator.malloc(50 * MIB)
    assert sorted(segment["segment_pool_id"] for segment in allocator.segments()) == [(0, 0), POOL]
    allocator.free(live)
    allocator.validate()
