"""Expandable segments: growing in place, holes, pages given back and taken again."""

from __future__ import annotations

import pytest

from vramscope.allocator import Allocator, OutOfMemory, parse_alloc_conf
from vramscope.units import GIB, MIB

SETTINGS = parse_alloc_conf("expandable_segments:True")


def ranges(allocator: Allocator) -> list[tuple[int, list[int]]]:
    """Return (offset of the first range, block sizes with free ones negative) of each mapped range, in MiB."""
    segments = allocator.segments()
    base = segments[0]["address"]
    return [
        (
            (segment["address"] - base) // MIB,
            [b["size"] // MIB * (-1 if b["state"] == "inactive" else 1) for b in segment["blocks"]],
        )
        for segment in segments
    ]


def test_a_segment_grows_in_place_page_by_page() -> None:
    # GIVEN a device with expandable segments
    allocator = Allocator(GIB, SETTINGS)
    # WHEN 30, 5 and 50 MiB are allocated
    addresses = [allocator.malloc(size * MIB) for size in (30, 5, 50)]
    # THEN they lie behind each other, in pages of 20 MiB
    assert addresses == [addresses[0], addresses[0] + 30 * MIB, addresses[0] + 35 * MIB]
    assert ranges(allocator) == [(0, [30, 5, 50, -15])]
    assert allocator.reserved_bytes == 100 * MIB
    assert allocator.memory_stats()["segment"]["all"]["current"] == 0


def test_small_and_large_blocks_and_streams_have_segments_of_their_own() -> None:
    allocator = Allocator(GIB, SETTINGS)
    for size, stream in ((100, 0), (30 * MIB, 0), (30 * MIB, 7)):
        allocator.malloc(size, stream)
    found = [(s["segment_type"], s["stream"], s["total_size"] // MIB) for s in allocator.segments()]
    assert found == [("small", 0, 2), ("large", 0, 40), ("large", 7, 40)]


def test_whole_free_pages_are_given_back_and_the_rest_of_the_block_stays() -> None:
    # GIVEN a free block of 50 MiB from 30 to 80 MiB
    allocator = Allocator(GIB, SETTINGS)
    kept, freed, _end = [allocator.malloc(size * MIB) for size in (30, 50, 20)]
    allocator.free(freed)
    # WHEN the cache is emptied
    allocator.empty_cache()
    # THEN the two pages from 40 to 80 are gone, and 10 MiB in front of them are still free
    assert ranges(allocator) == [(0, [30, -10]), (80, [20])]
    assert allocator.reserved_bytes == 60 * MIB
    assert allocator.device_free_bytes == GIB - 60 * MIB
    # WHEN 50 MiB are asked for again
    # THEN the hole is filled where it was
    assert allocator.malloc(50 * MIB) == kept + 30 * MIB
    assert ranges(allocator) == [(0, [30, 50, 20])]


def test_a_segment_without_a_live_block_goes_away() -> None:
    allocator = Allocator(GIB, SETTINGS)
    first = allocator.malloc(30 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.segments() == []
    assert allocator.device_free_bytes == GIB
    assert allocator.malloc(30 * MIB) == first


def test_after_an_error_all_that_is_not_live_can_be_had_in_one_piece() -> None:
    # GIVEN 100 MiB with a hole of 40 MiB between live blocks, and 20 MiB that were never taken
    allocator = Allocator(100 * MIB, SETTINGS)
    blocks = [allocator.malloc(20 * MIB) for _ in range(4)]
    for address in blocks[1:3]:
        allocator.free(address)
    # WHEN more is asked for than is left
    with pytest.raises(OutOfMemory):
        allocator.malloc(70 * MIB)
    # THEN the hole's pages have been given back, so that a request for all that is free succeeds
    allocator.validate()
    allocator.malloc(60 * MIB)
    assert allocator.device_free_bytes == 0


def test_the_textbook_case_does_not_fail() -> None:
    # GIVEN survivors of 12 MiB among 500 MiB fillers that are freed
    allocator = Allocator(8 * GIB, SETTINGS)
    fillers = []
    for _ in range(14):
        allocator.malloc(12 * MIB)
        fillers.append(allocator.malloc(500 * MIB))
    for filler in fillers:
        allocator.free(filler)
    # WHEN 6 GiB are asked for
    # THEN the holes' pages serve it
    allocator.malloc(6 * GIB)
    allocator.validate()


def test_a_block_at_the_end_counts_with_the_size_it_can_grow_to() -> None:
    # GIVEN a free block of 30 MiB in the middle, and one of 20 MiB at the end of the mapped pages
    allocator = Allocator(GIB, SETTINGS)
    middle, _live, end = [allocator.malloc(size * MIB) for size in (30, 10, 20)]
    allocator.free(middle)
    allocator.free(end)
    # WHEN 15 MiB are asked for, which the smaller one at the end has
    # THEN the larger one in the middle serves, because the one at the end can still grow
    assert allocator.malloc(15 * MIB) == middle
