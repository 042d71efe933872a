"""The figures of a map: on small maps by hand, and on random ones against what the allocator then does."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tests.allocator_traces import Simulation, random_program
from tests.segments import device_map, segment
from vramscope.allocator import Allocator, OutOfMemory, parse_alloc_conf
from vramscope.columns import DeviceMap, from_segments
from vramscope.metrics import (
    AFTER_RELEASE,
    CACHED_BLOCK,
    MORE_OF_EXPANDABLE,
    NEW_SEGMENT,
    LargestFree,
    MapFigures,
    largest_free_blocks,
    summarize,
)
from vramscope.units import GIB, MIB


def figures(found: DeviceMap, *, device_free_bytes: int | None = 0, expandable: bool = False) -> MapFigures:
    return summarize(found, device_free_bytes=device_free_bytes, expandable=expandable)


def test_an_empty_map_has_no_ratios() -> None:
    found = figures(device_map())
    assert (found.reserved_bytes, found.segments, found.blocks, found.largest_fit_bytes) == (0, 0, 0, 0)
    assert found.external_fragmentation_ratio is None
    assert found.stranded_ratio is None
    assert found.largest_fit_way is None


def test_bytes_are_summed_by_state() -> None:
    # GIVEN a segment with a live, a pending and a free block, and one that is all free
    shared = segment((4 * MIB, "live"), (6 * MIB, "pending"), (10 * MIB, "free"))
    idle = segment((30 * MIB, "free"), at=GIB)

    # WHEN it is summarized
    found = figures(device_map(shared, idle))

    # THEN only active blocks have requests, and only the shared segment's free block is an inactive split
    assert found.reserved_bytes == 50 * MIB
    assert (found.allocated_bytes, found.pending_free_bytes, found.active_bytes) == (4 * MIB, 6 * MIB, 10 * MIB)
    assert found.requested_bytes == 10 * MIB - 200
    assert found.rounding_waste_bytes == 200
    assert (found.free_cached_bytes, found.inactive_split_bytes) == (40 * MIB, 10 * MIB)
    assert found.stranded_ratio == pytest.approx(0.2)
    assert found.largest_free_block_bytes == 30 * MIB
    assert found.external_fragmentation_ratio == pytest.approx(0.25)
    assert found.releasable_bytes == 30 * MIB


def test_the_free_part_of_an_expandable_segment_is_no_inactive_split() -> None:
    found = figures(device_map(segment((4 * MIB, "live"), (16 * MIB, "free"), expandable=True)), expandable=True)
    assert found.inactive_split_bytes == 0
    assert found.free_cached_bytes == 16 * MIB


@pytest.mark.parametrize(
    ("blocks", "small", "expected"),
    [
        pytest.param([(60 * MIB, "free")], False, 60 * MIB, id="all of it"),
        pytest.param([(MIB, "live"), (59 * MIB, "free")], False, 40 * MIB, id="whole pages only"),
        pytest.param([(30 * MIB, "live"), (20 * MIB, "free"), (10 * MIB, "live")], False, 0, id="across two pages"),
        pytest.param(
            [(30 * MIB, "live"), (5 * MIB, "pending"), (25 * MIB, "free")], False, 20 * MIB, id="with a pending"
        ),
        pytest.param([(MIB, "live"), (5 * MIB, "free")], True, 4 * MIB, id="small pages"),
    ],
)
def test_whole_free_pages_of_an_expandable_segment_can_be_released(
    blocks: list[tuple[int, str]], small: bool, expected: int
) -> None:
    found = figures(device_map(segment(*blocks, expandable=True, small=small)), expandable=True)
    assert found.releasable_bytes == expected


def test_a_private_pool_is_neither_releasable_nor_a_place_for_a_plain_request() -> None:
    private = device_map(segment((40 * MIB, "free"), pool=(0, 1)))
    found = figures(private)
    assert (found.releasable_bytes, found.largest_free_block_bytes, found.largest_fit_bytes) == (0, 0, 0)
    assert largest_free_blocks(private) == (LargestFree("large, private (0, 1)", 0, 40 * MIB),)


def test_a_pending_free_counts_as_releasable_because_a_release_waits_for_it() -> None:
    found = figures(device_map(segment((8 * MIB, "pending"), (12 * MIB, "free"))))
    assert (found.releasable_bytes, found.inactive_split_bytes) == (20 * MIB, 12 * MIB)


def test_the_largest_free_block_is_told_by_pool_and_stream() -> None:
    # GIVEN free blocks on two streams and in both pools
    found = device_map(
        segment((MIB, "live"), (MIB, "free"), small=True),
        segment((4 * MIB, "live"), (16 * MIB, "free"), at=GIB),
        segment((4 * MIB, "live"), (60 * MIB, "free"), at=2 * GIB, stream=7),
    )
    # THEN each is told, and the single figure is that of the default stream
    assert largest_free_blocks(found) == (
        LargestFree("large", 0, 16 * MIB),
        LargestFree("large", 7, 60 * MIB),
        LargestFree("small", 0, MIB),
    )
    assert figures(found).largest_free_block_bytes == 16 * MIB


@pytest.mark.parametrize(
    ("free_mib", "expected_mib", "way"),
    [
        (1, 16, CACHED_BLOCK),
        (15, 16, CACHED_BLOCK),
        (33, 32, NEW_SEGMENT),
    ],
)
def test_the_largest_fit_is_the_cached_block_or_what_the_driver_has(free_mib: int, expected_mib: int, way: str) -> None:
    found = figures(device_map(segment((4 * MIB, "live"), (16 * MIB, "free"))), device_free_bytes=free_mib * MIB)
    assert (found.largest_fit_bytes, found.largest_fit_way) == (expected_mib * MIB, way)
    assert not found.largest_fit_is_estimate


def test_what_is_released_and_what_the_driver_has_make_one_segment_together() -> None:
    idle = device_map(segment((20 * MIB, "free")), segment((20 * MIB, "free"), at=GIB))
    found = figures(idle, device_free_bytes=10 * MIB)
    assert (found.largest_fit_bytes, found.largest_fit_way) == (50 * MIB, AFTER_RELEASE)


def test_an_expandable_segment_grows_from_the_free_block_at_its_end() -> None:
    found = figures(
        device_map(segment((4 * MIB, "live"), (16 * MIB, "free"), expandable=True)),
        device_free_bytes=45 * MIB,
        expandable=True,
    )
    assert (found.largest_fit_bytes, found.largest_fit_way) == (56 * MIB, MORE_OF_EXPANDABLE)
    assert found.largest_fit_is_estimate


def test_without_the_drivers_word_the_largest_fit_is_not_known() -> None:
    # GIVEN a free block in the cache, beside which the driver may have more
    found = figures(device_map(segment((4 * MIB, "live"), (16 * MIB, "free"))), device_free_bytes=None)
    # THEN nothing is said of the largest request, and the block is shown as what it is
    assert (found.largest_fit_bytes, found.largest_fit_way) == (None, None)
    assert found.largest_free_block_bytes == 16 * MIB


def test_every_figure_is_one_that_json_can_say() -> None:
    found = figures(device_map(segment((4 * MIB, "live"), (16 * MIB, "free")))).as_dict()
    assert found["reserved_bytes"] == 20 * MIB
    assert all(value is None or isinstance(value, int | float | str) for value in found.values())


def test_seven_gib_of_holes_leave_room_for_what_the_driver_has() -> None:
    # GIVEN the textbook case: 14 segments of 512 MiB, each with a small live block
    comb = device_map(*(segment((12 * MIB, "live"), (500 * MIB, "free"), at=i * GIB) for i in range(14)))

    # WHEN the driver has 1 GiB, and when it has nothing
    found, full = figures(comb, device_free_bytes=GIB), figures(comb, device_free_bytes=0)

    # THEN the largest request is what the driver has, and without it that of one hole
    assert (found.largest_fit_bytes, found.largest_fit_way) == (GIB, NEW_SEGMENT)
    assert (full.largest_fit_bytes, full.largest_fit_way) == (500 * MIB, CACHED_BLOCK)
    assert full.free_cached_bytes == 14 * 500 * MIB


def states(alloc_conf: str) -> Iterator[Allocator]:
    """Yield a simulated allocator at many moments of random programs, each as a copy to try things on."""
    for seed in range(4):
        simulation = Simulation(parse_alloc_conf(alloc_conf), streams=[0, 5, 6])
        for count, (action, *arguments) in enumerate(random_program(seed, 250)):
            getattr(simulation, action)(*arguments)
            if count % 40 == 0:
                yield copy.deepcopy(simulation.allocator)


def succeeds(allocator: Allocator, size_bytes: int) -> bool:
    try:
        copy.deepcopy(allocator).malloc(size_bytes)
    except OutOfMemory:
        return False
    return True


@pytest.mark.parametrize("alloc_conf", ["", "expandable_segments:True"])
def test_figures_agree_with_what_the_allocator_counts_and_does(alloc_conf: str) -> None:
    expandable = "expandable" in alloc_conf
    for allocator in states(alloc_conf):
        # GIVEN a map of the allocator's memory
        found = from_segments(allocator.segments(), device=0)
        free_bytes = allocator.device_free_bytes

        # WHEN it is summarized
        summary = summarize(found, device_free_bytes=free_bytes, expandable=expandable)

        # THEN its figures are the allocator's own counters
        counters = allocator.memory_stats()
        for name in ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes"):
            assert getattr(summary, name) == counters[name]["all"]["current"], name

        # THEN a request of the largest fit succeeds, and one a step larger (with expandable segments: a page) fails
        assert summary.largest_fit_bytes is not None
        assert succeeds(allocator, summary.largest_fit_bytes)
        assert not succeeds(allocator, summary.largest_fit_bytes + (20 * MIB if expandable else 512))

        # THEN empty_cache() gives back what was said
        allocator.empty_cache()
        assert allocator.device_free_bytes - free_bytes == summary.releasable_bytes
