"""What fit says of a moment of a file is what the allocator of the job does then."""

from __future__ import annotations

import random

import pytest

from tests.unit.replay.programs import fragmented, side
from vramscope.allocator import Allocator, OutOfMemory, parse_alloc_conf
from vramscope.allocator.prospect import AFTER_RELEASE, CACHED_BLOCK, MORE_OF_EXPANDABLE, NEW_SEGMENT
from vramscope.replay.fit import would_fit
from vramscope.trace.out_of_memory import Holes
from vramscope.units import GIB, KIB, MIB

SIZES = (400, 700 * KIB, 3 * MIB, 19 * MIB, 64 * MIB, 190 * MIB)
CONFS = ("", "expandable_segments:True", "max_split_size_mb:40", "roundup_power2_divisions:4")


def test_what_is_in_the_way_are_holes_that_are_each_too_small() -> None:
    # GIVEN 60 MiB free in three holes, and 100 MiB that the driver has
    found = would_fit(side(fragmented(), at="oom"), 110 * MIB)
    # THEN the request fails, and the file tells what the driver had
    assert (found.way, found.driver_free_bytes, found.way_if_driver_has) == (None, 100 * MIB, None)
    assert found.holes == Holes(3, 60 * MIB, 20 * MIB)
    assert [(row.size_bytes, row.way) for row in found.largest] == [(100 * MIB, NEW_SEGMENT)]


def test_without_an_out_of_memory_what_the_driver_has_is_not_known() -> None:
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(30 * MIB))
    moment = side(allocator)
    # WHEN a cached block serves, nothing else needs to be known
    cached = would_fit(moment, 20 * MIB)
    assert (cached.way, cached.driver_free_bytes, cached.driver_needed_bytes) == (CACHED_BLOCK, None, None)
    # WHEN none does, it says what it would take, and what would happen without
    unknown = would_fit(moment, 50 * MIB)
    assert (unknown.way, unknown.way_if_driver_has, unknown.driver_needed_bytes) == (None, NEW_SEGMENT, 50 * MIB)
    assert not any("driver" in line for line in unknown.doubts)
    # THEN what is given is taken
    assert would_fit(moment, 50 * MIB, driver_free_bytes=50 * MIB).way == NEW_SEGMENT
    after = would_fit(moment, 50 * MIB, driver_free_bytes=20 * MIB)
    assert (after.way, after.released_bytes) == (AFTER_RELEASE, 30 * MIB)


def test_what_the_driver_has_is_counted_on_from_an_out_of_memory() -> None:
    # GIVEN 40 MiB more taken since the request failed
    allocator = fragmented()
    allocator.malloc(40 * MIB)
    found = would_fit(side(allocator), 50 * MIB)
    assert found.driver_free_bytes == allocator.device_free_bytes == 60 * MIB
    assert any("counted from the out-of-memory at event" in line for line in found.doubts)


def test_other_streams_have_blocks_that_do_not_serve() -> None:
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(30 * MIB, stream=5))
    found = would_fit(side(allocator), 20 * MIB, driver_free_bytes=0)
    assert (found.way, found.holes.count, found.elsewhere_bytes) == (AFTER_RELEASE, 0, 30 * MIB)
    assert would_fit(side(allocator), 20 * MIB, stream=5, driver_free_bytes=0).way == CACHED_BLOCK


def test_a_private_pool_has_a_largest_request_of_its_own() -> None:
    allocator = Allocator(GIB)
    allocator.hold_pool((0, 1))
    allocator.begin_pool((0, 1))
    allocator.free(allocator.malloc(30 * MIB))
    allocator.end_pool()
    found = would_fit(side(allocator), 20 * MIB, driver_free_bytes=0)
    assert found.way is None
    assert [(row.pool, row.size_bytes) for row in found.largest] == [((0, 0), 0), ((0, 1), 30 * MIB)]


def test_pages_may_have_to_be_mapped() -> None:
    allocator = Allocator(GIB, parse_alloc_conf("expandable_segments:True"))
    allocator.malloc(30 * MIB)
    found = would_fit(side(allocator), 25 * MIB)
    assert (found.way, found.way_if_driver_has, found.driver_needed_bytes) == (None, MORE_OF_EXPANDABLE, 40 * MIB)


@pytest.mark.parametrize("conf", CONFS)
def test_the_answer_is_what_the_allocator_then_does(conf: str) -> None:
    # GIVEN a job that filled its card in some order
    draw = random.Random(conf)
    allocator = Allocator(300 * MIB, parse_alloc_conf(conf))
    live: list[int] = []
    for _ in range(150):
        if live and draw.random() < 0.48:
            allocator.free(live.pop(draw.randrange(len(live))))
        else:
            try:
                live.append(allocator.malloc(int(draw.choice(SIZES[:4]) * draw.uniform(0.5, 1.5))))
            except OutOfMemory:
                continue
    free_bytes = allocator.device_free_bytes
    for size_bytes in SIZES:
        found = would_fit(side(allocator), size_bytes, driver_free_bytes=free_bytes)
        # THEN it would be served as the allocator itself says, which is held against what it does elsewhere
        assert (found.way, found.block_bytes) == allocator.fit(size_bytes)[:2]
    assert found.largest[0].size_bytes == allocator.largest_fit().size_bytes
