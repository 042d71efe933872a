"""An allocator that continues from a map goes on as the one that the map was taken of."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.allocator_traces import Simulation, compact, random_program
from tests.segments import BASE, device_map, segment
from vramscope.allocator import Allocator, OutOfMemory, PoolId, Settings, parse_alloc_conf, recorded_settings
from vramscope.allocator.prospect import AFTER_RELEASE, MORE_OF_EXPANDABLE, NEW_SEGMENT, LargestFit
from vramscope.columns import from_segments, to_segments
from vramscope.errors import BadInputError
from vramscope.units import GIB, MIB

STREAMS = [0, 7, 9]
POOLS: list[PoolId] = [(0, 1), (0, 2)]
CASES = Path(__file__).parents[3].parent / "shared" / "cases" / "snapshots"
REAL = (
    "01-three-gpus-expandable-oom-on-device-1.pickle",
    "05-6633-blocks-no-trace.pickle",
    "06-ten-streams-no-time.pickle",
    "09-private-pools-pending-free.pickle",
    "10-1722-segments-trace-starts-mid-run.pickle",
    "12-two-devices-expandable-no-trace.pickle",
)
CONFS = st.sampled_from(
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:64",
        "max_split_size_mb:64,expandable_segments:True",
        "roundup_power2_divisions:[1:4,16:2,>:8]",
        "per_process_memory_fraction:0.5",
        "large_segment_size_mb:26,max_split_size_mb:100,max_non_split_rounding_mb:80",
        "large_segment_size_mb:26,expandable_segments:True",
    ]
)


def continued(allocator: Allocator, given_settings: Settings) -> Allocator:
    found = from_segments(allocator.segments(), device=0)
    return Allocator.from_snapshot(
        found,
        given_settings,
        capacity_bytes=allocator.capacity_bytes,
        device_free_bytes=allocator.device_free_bytes,
        trace_max_entries=1000,
    )


def current(allocator: Allocator) -> dict[str, int]:
    """Return the counters that follow from the blocks."""
    return {
        f"{name}.{half}": counter[half]["current"]
        for name, counter in allocator.memory_stats().items()
        if isinstance(counter, dict) and "all" in counter
        for half in counter
    }


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), conf=CONFS, operations=st.integers(0, 250))
def test_what_follows_is_the_same(seed: int, conf: str, operations: int) -> None:
    # GIVEN any state of an allocator that sorts by address, as what a map does not tell is assumed, in which no other stream uses a
    # live block; with expandable segments one that gave no page back, so that each begins where its memory does
    given_settings = replace(parse_alloc_conf(conf), order="2.11")
    simulation = Simulation(given_settings, streams=STREAMS, pools=POOLS)
    for place, (action, *arguments) in enumerate(random_program(seed, 250, pools=2)[:operations]):
        if action != "drop_pool":
            getattr(simulation, action)(*arguments)
        assume(action != "record_stream" or place + 3 < operations)
    original = simulation.allocator
    assume(not given_settings.expandable_segments or not original.memory_stats()["num_device_free"])
    original.complete_events()
    with_pending = compact(original.segments())

    # WHEN another one continues from its map
    other = continued(original, given_settings)

    # THEN it has the same blocks and counters, and foretells the same
    other.validate()
    assert compact(other.segments()) == with_pending
    assert current(other) == current(original)
    assert (other.reserved_bytes, other.device_free_bytes) == (original.reserved_bytes, original.device_free_bytes)
    other.complete_events()
    while original.pool_of(0) != (0, 0):
        original.end_pool()
    assert other.largest_fit() == original.largest_fit()

    # THEN both go on alike, every address and every error
    go_on_alike(original, other, simulation.addresses.values(), seed + 1)
    other.validate()
    assert compact(other.segments()) == compact(original.segments())


def go_on_alike(original: Allocator, other: Allocator, addresses: Iterable[int], seed: int) -> None:
    live: dict[int, int] = {-1 - place: address for place, address in enumerate(addresses)}
    names = list(live)
    for action, *arguments in random_program(seed, 150):
        if action == "malloc":
            name, size, stream = arguments
            result = malloc(original, size, STREAMS[stream])
            assert malloc(other, size, STREAMS[stream]) == result
            if isinstance(result, int):
                live[name] = result
        elif action == "free":
            # What lived before goes with what came after.
            for address in [live.pop(name) for name in (arguments[0], names.pop() if names else 0) if name in live]:
                original.free(address)
                other.free(address)
        elif action == "empty_cache":
            original.empty_cache()
            other.empty_cache()


def malloc(allocator: Allocator, size_bytes: int, stream: int) -> int | str:
    try:
        return allocator.malloc(size_bytes, stream)
    except OutOfMemory as error:
        return str(error)


@pytest.mark.skipif(not CASES.is_dir(), reason="the snapshots that people published are not beside the checkout")
@pytest.mark.parametrize("name", REAL)
def test_what_people_published_can_be_continued(name: str) -> None:
    # GIVEN a real job's snapshot
    tree = pickle.loads((CASES / name).read_bytes())
    recorded, _ = recorded_settings(tree.get("allocator_settings", {}))
    for device in {record["device"] for record in tree["segments"]}:
        found = from_segments(tree["segments"], device=device)
        # WHEN an allocator continues from it
        allocator = Allocator.from_snapshot(found, recorded, capacity_bytes=192 * GIB)
        # THEN it has the same segments and blocks, and goes on
        assert compact(allocator.segments()) == compact(to_segments(found))
        size_bytes, _ = allocator.largest_fit()
        allocator.malloc(size_bytes)


def test_a_hole_in_an_expandable_segment_can_be_filled_again() -> None:
    # GIVEN two ranges with a hole of two pages between them, on a full card
    found = device_map(
        segment((20 * MIB, "live"), expandable=True), segment((20 * MIB, "live"), at=60 * MIB, expandable=True)
    )
    on = parse_alloc_conf("expandable_segments:True")
    allocator = Allocator.from_snapshot(found, on, capacity_bytes=GIB, device_free_bytes=40 * MIB)
    # WHEN 30 MiB are asked for
    # THEN the hole serves
    assert allocator.largest_fit() == LargestFit(40 * MIB, MORE_OF_EXPANDABLE)
    assert allocator.malloc(30 * MIB) == BASE + 20 * MIB
    allocator.validate()
    assert any("address space" in doubt for doubt in allocator.doubts)


def test_ranges_of_another_stream_end_an_address_space() -> None:
    found = device_map(
        segment((20 * MIB, "live"), expandable=True),
        segment((20 * MIB, "live"), at=60 * MIB, expandable=True, stream=7),
        segment((20 * MIB, "free"), at=80 * MIB, expandable=True, stream=7),
    )
    on = parse_alloc_conf("expandable_segments:True")
    allocator = Allocator.from_snapshot(found, on, capacity_bytes=GIB)
    allocator.validate()
    assert allocator.malloc(70 * MIB) != BASE + 20 * MIB
    assert allocator.malloc(20 * MIB, stream=7) == BASE + 80 * MIB
    allocator.validate()


def test_what_a_map_does_not_tell_is_named() -> None:
    plain = device_map(segment((20 * MIB, "live")))
    doubtful = device_map(
        segment((10 * MIB, "pending"), (10 * MIB, "live")),
        segment((20 * MIB, "free"), at=GIB),
        segment((20 * MIB, "free"), at=2 * GIB, pool=(0, 1)),
    )
    known = Allocator.from_snapshot(plain, capacity_bytes=GIB, device_free_bytes=GIB // 2)
    assert len(known.doubts) == 1
    gc = parse_alloc_conf("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9")
    lines = Allocator.from_snapshot(doubtful, gc, capacity_bytes=4 * GIB).doubts
    for words in ("driver has free", "order in which segments", "pending frees", "private pools", "garbage collection"):
        assert sum(words in line for line in lines) == 1, words
    assert known.device_free_bytes == GIB // 2


def test_a_private_pool_of_a_map_is_held() -> None:
    found = device_map(segment((20 * MIB, "free"), pool=(0, 1)))
    allocator = Allocator.from_snapshot(found, capacity_bytes=20 * MIB)
    assert allocator.largest_fit() == LargestFit(0, None)
    allocator.release_pool((0, 1))
    assert allocator.largest_fit() == LargestFit(20 * MIB, AFTER_RELEASE)
    allocator.validate()


def test_more_free_memory_than_there_can_be_is_not_taken_over() -> None:
    allocator = Allocator.from_snapshot(device_map(), capacity_bytes=GIB, device_free_bytes=2 * GIB)
    assert allocator.device_free_bytes == GIB
    assert allocator.largest_fit() == LargestFit(GIB, NEW_SEGMENT)


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ([segment((20 * MIB, "live")), segment((20 * MIB, "live"), at=10 * MIB)], "overlap"),
        ([segment((2 * GIB, "live"))], "2.00 GiB, more than a card of 1.00 GiB"),
        (
            [
                segment((20 * MIB, "live"), expandable=True),
                segment((20 * MIB, "live"), at=30 * MIB + 512, expandable=True),
            ],
            "not whole pages",
        ),
    ],
)
def test_an_impossible_map_is_refused_in_one_line(segments: list[dict[str, object]], why: str) -> None:
    with pytest.raises(BadInputError, match=why) as caught:
        Allocator.from_snapshot(device_map(*segments), capacity_bytes=GIB)
    assert "\n" not in str(caught.value)
