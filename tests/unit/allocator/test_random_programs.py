"""Random programs: the invariants hold after every operation, under every option."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.allocator_traces import Simulation, random_program, simulate
from vramscope.allocator import parse_alloc_conf

OPTIONS = st.sampled_from(
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:64",
        "max_split_size_mb:64,expandable_segments:True",
        "roundup_power2_divisions:[1:4,16:2,>:8]",
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
        "large_segment_size_mb:26,max_split_size_mb:100,max_non_split_rounding_mb:80",
    ]
)
STREAMS, POOLS = [0, 7, 9], [(0, 1), (0, 2)]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), alloc_conf=OPTIONS)
def test_the_invariants_hold_after_every_operation(seed: int, alloc_conf: str) -> None:
    simulate(random_program(seed, 120, pools=2), parse_alloc_conf(alloc_conf), streams=STREAMS, pools=POOLS)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), alloc_conf=OPTIONS)
def test_all_memory_comes_back_when_all_is_freed(seed: int, alloc_conf: str) -> None:
    # GIVEN the state after a random program
    simulation = Simulation(parse_alloc_conf(alloc_conf), streams=STREAMS)
    for action, *arguments in random_program(seed, 120):
        getattr(simulation, action)(*arguments)
    # WHEN everything is freed and the cache emptied
    for name in list(simulation.addresses):
        simulation.free(name)
    simulation.empty_cache()
    # THEN the device is empty
    allocator = simulation.allocator
    assert allocator.segments() == []
    assert allocator.device_free_bytes == allocator.capacity_bytes
    assert all(
        counter["all"]["current"] == 0
        for name, counter in allocator.memory_stats().items()
        if isinstance(counter, dict) and "all" in counter
    )
