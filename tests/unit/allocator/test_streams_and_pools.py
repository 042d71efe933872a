"""Blocks that other streams use, and private pools."""

from __future__ import annotations

import pytest

from vramscope.allocator import Allocator, OutOfMemory
from vramscope.units import GIB, MIB

POOL = (0, 1)


def state_of(allocator: Allocator, address: int) -> str:
    blocks = [block for segment in allocator.segments() for block in segment["blocks"]]
    return next(str(block["state"]) for block in blocks if block["address"] == address)


def test_a_block_that_another_stream_uses_stays_pending_until_that_stream_is_done() -> None:
    # GIVEN a block that stream 7 uses too
    allocator = Allocator(GIB)
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, 7)

    # WHEN it is freed
    allocator.free(address)

    # THEN it is pending, and nobody gets it
    assert state_of(allocator, address) == "active_pending_free"
    assert allocator.malloc(20 * MIB) != address
    stats = allocator.memory_stats()
    assert stats["active_bytes"]["all"]["current"] == 40 * MIB
    assert stats["allocated_bytes"]["all"]["current"] == 20 * MIB

    # WHEN stream 7 is done
    allocator.complete_events()

    # THEN the next malloc sees that
    assert state_of(allocator, address) == "active_pending_free"
    assert allocator.malloc(20 * MIB) == address


def test_a_block_that_two_streams_use_waits_for_both() -> None:
    allocator = Allocator(GIB)
    address = allocator.malloc(20 * MIB)
    for stream in (7, 8, 7):
        allocator.record_stream(address, stream)
    allocator.free(address)
    allocator.validate()
    allocator.complete_events()
    assert allocator.malloc(20 * MIB) == address


def test_use_by_its_own_stream_is_no_reason_to_wait() -> None:
    allocator = Allocator(GIB)
    address = allocator.malloc(20 * MIB, stream=7)
    allocator.record_stream(address, 7)
    allocator.free(address)
    assert state_of(allocator, address) == "inactive"


def test_a_pending_block_is_not_merged() -> None:
    allocator = Allocator(GIB)
    first, second = allocator.malloc(5 * MIB), allocator.malloc(5 * MIB)
    allocator.record_stream(first, 7)
    allocator.free(first)
    allocator.free(second)
    assert [block["size"] // MIB for block in allocator.segments()[0]["blocks"]] == [5, 15]
    allocator.validate()


def test_a_release_waits_for_pending_blocks() -> None:
    # GIVEN a full device whose only block is pending
    allocator = Allocator(20 * MIB)
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, 7)
    allocator.free(address)
    # WHEN a small block is asked for, which needs a segment of its own
    allocator.malloc(100)
    # THEN the pending block's segment made room
    assert [segment["total_size"] for segment in allocator.segments()] == [2 * MIB]
    assert allocator.memory_stats()["num_sync_all_streams"] == 1


def test_a_private_pool_keeps_to_itself() -> None:
    # GIVEN a block from a private pool, freed
    allocator = Allocator(GIB)
    allocator.hold_pool(POOL)
    allocator.begin_pool(POOL)
    address = allocator.malloc(8 * MIB)
    allocator.end_pool()
    allocator.free(address)

    # THEN the default pool does not use it, nor does a release touch it, while the pool is held
    assert allocator.malloc(8 * MIB) != address
    allocator.empty_cache()
    assert [segment["segment_pool_id"] for segment in allocator.segments()] == [POOL, (0, 0)]
    assert allocator.memory_stats()["reserved_bytes_by_private_pools"][POOL]["all"]["current"] == 20 * MIB

    # THEN the pool itself does
    allocator.begin_pool(POOL)
    assert allocator.malloc(8 * MIB) == address


def test_a_pool_that_nobody_holds_is_released() -> None:
    allocator = Allocator(GIB)
    for _ in range(2):
        allocator.hold_pool(POOL)
    allocator.begin_pool(POOL)
    allocator.free(allocator.malloc(8 * MIB))
    allocator.end_pool()
    allocator.release_pool(POOL)
    allocator.empty_cache(POOL)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.release_pool(POOL)
    allocator.empty_cache(POOL)
    assert allocator.reserved_bytes == 0
    with pytest.raises(KeyError):
        allocator.begin_pool(POOL)


def test_the_error_tells_what_private_pools_keep() -> None:
    allocator = Allocator(100 * MIB)
    allocator.hold_pool(POOL)
    allocator.begin_pool(POOL)
    allocator.free(allocator.malloc(40 * MIB))
    allocator.end_pool()
    with pytest.raises(
        OutOfMemory, match=r"with 40.00 MiB allocated in private pools \(e.g., CUDA Graphs\), and 0 bytes"
    ):
        allocator.malloc(80 * MIB)


def test_pools_are_created_before_they_are_used_and_released_once() -> None:
    allocator = Allocator(GIB)
    with pytest.raises(KeyError):
        allocator.begin_pool(POOL)
    with pytest.raises(ValueError, match="default pool"):
        allocator.hold_pool((0, 0))
    allocator.hold_pool(POOL)
    allocator.release_pool(POOL)
    with pytest.raises(ValueError, match="nobody holds"):
        allocator.release_pool(POOL)
