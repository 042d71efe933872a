"""Where a block comes from, how it is split and merged, and in which order free blocks are used."""

from __future__ import annotations

import pytest

from vramscope.allocator import Allocator, Settings
from vramscope.units import GIB, KIB, MIB


def layout(allocator: Allocator) -> list[list[tuple[int, str]]]:
    """Return (bytes, state) of each block, by segment."""
    return [[(b["size"], b["state"]) for b in segment["blocks"]] for segment in allocator.segments()]


def test_small_and_large_requests_come_from_their_own_segments() -> None:
    # GIVEN a fresh device
    allocator = Allocator(GIB)

    # WHEN something small, something large and something larger are allocated
    for size in (100, 3 * MIB, 33 * MIB + 1):
        allocator.malloc(size)

    # THEN the small one is cut from 2 MiB, the large from 20 MiB, and the larger has whole pages
    assert layout(allocator) == [
        [(512, "active_allocated"), (2 * MIB - 512, "inactive")],
        [(3 * MIB, "active_allocated"), (17 * MIB, "inactive")],
        [(34 * MIB, "active_allocated")],
    ]
    assert [segment["segment_type"] for segment in allocator.segments()] == ["small", "large", "large"]
    assert allocator.reserved_bytes == 56 * MIB
    assert allocator.device_free_bytes == GIB - 56 * MIB


def test_the_smallest_block_that_is_large_enough_is_used() -> None:
    # GIVEN free blocks of 40, 20 and 30 MiB
    allocator = Allocator(GIB)
    addresses = {size: allocator.malloc(size * MIB) for size in (40, 20, 30)}
    for address in addresses.values():
        allocator.free(address)

    # WHEN 25 MiB are asked for
    # THEN they are the front of the 30
    assert allocator.malloc(25 * MIB) == addresses[30]
    assert layout(allocator)[2] == [(25 * MIB, "active_allocated"), (5 * MIB, "inactive")]


@pytest.mark.parametrize(("rest", "splits"), [(MIB, False), (MIB + 512, True)])
def test_a_large_block_is_split_if_more_than_1_mib_is_left(rest: int, splits: bool) -> None:
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(40 * MIB))
    allocator.malloc(40 * MIB - rest)
    assert len(layout(allocator)[0]) == (2 if splits else 1)


@pytest.mark.parametrize(("size", "splits"), [(2 * MIB - 512, True), (2 * MIB, False)])
def test_a_small_block_is_split_down_to_512_bytes(size: int, splits: bool) -> None:
    # GIVEN two small blocks that fill a segment but for what is asked
    allocator = Allocator(GIB)
    allocator.malloc(MIB)
    allocator.malloc(size - MIB)
    assert len(layout(allocator)[0]) == (3 if splits else 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_free_neighbours_become_one_block(order: tuple[int, ...]) -> None:
    # GIVEN three blocks in one segment
    allocator = Allocator(GIB)
    addresses = [allocator.malloc(5 * MIB) for _ in range(3)]
    # WHEN they are freed, in any order
    for index in order:
        allocator.free(addresses[index])
        allocator.validate()
    # THEN the segment is one free block again
    assert layout(allocator) == [[(20 * MIB, "inactive")]]


def test_streams_do_not_share_free_blocks() -> None:
    allocator = Allocator(GIB)
    mine = allocator.malloc(20 * MIB)
    allocator.free(mine)
    assert allocator.malloc(20 * MIB, stream=7) != mine
    assert allocator.malloc(20 * MIB) == mine


@pytest.mark.parametrize(("order", "expected"), [("2.11", "newer"), ("2.12", "older"), ("2.13", "older")])
def test_of_equal_blocks_the_lower_or_the_older_is_used_by_release(order: str, expected: str) -> None:
    # GIVEN two free segments of one size, the newer one at the lower address, which was free again
    allocator = Allocator(GIB, Settings(order=order))
    first, older = allocator.malloc(22 * MIB), allocator.malloc(22 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    newer = allocator.malloc(22 * MIB)
    assert newer < older
    for address in (older, newer):
        allocator.free(address)
    # WHEN that size is asked for
    # THEN it depends on the release which one is used
    assert allocator.malloc(22 * MIB) == {"older": older, "newer": newer}[expected]


def test_a_request_must_be_positive() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        Allocator(GIB).malloc(0)


def test_only_what_was_handed_out_can_be_freed_and_only_once() -> None:
    allocator = Allocator(GIB)
    address = allocator.malloc(KIB)
    with pytest.raises(KeyError):
        allocator.free(address + 512)
    allocator.free(address)
    with pytest.raises(KeyError):
        allocator.free(address)


def test_devices_have_addresses_of_their_own() -> None:
    assert Allocator(GIB).malloc(1) == 0x2000_0000_0000
    assert Allocator(GIB, device=1).malloc(1) == 0x2400_0000_0000
