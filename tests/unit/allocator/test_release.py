"""Memory that runs out: what is given back first, the limits, and the error when nothing helps."""

from __future__ import annotations

import pytest

from vramscope.allocator import Allocator, OutOfMemory, parse_alloc_conf
from vramscope.units import GIB, MIB


def actions(allocator: Allocator) -> list[str]:
    return [entry["action"] for entry in allocator.snapshot()["device_traces"][0]]


def test_cached_segments_are_released_before_a_request_fails() -> None:
    # GIVEN a device of 100 MiB that is full of cached segments
    allocator = Allocator(100 * MIB)
    for address in [allocator.malloc(50 * MIB) for _ in range(2)]:
        allocator.free(address)

    # WHEN 80 MiB are asked for
    allocator.malloc(80 * MIB)

    # THEN both were given back, and that is counted as a retry
    assert allocator.reserved_bytes == 80 * MIB
    assert actions(allocator)[-4:] == ["segment_free", "segment_free", "segment_alloc", "alloc"]
    stats = allocator.memory_stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"], stats["num_device_free"]) == (1, 0, 2)


def test_a_small_survivor_in_each_segment_makes_seven_gib_useless() -> None:
    # GIVEN the textbook case: each cached segment of 512 MiB is split by a small block that stays
    allocator = Allocator(8 * GIB, other_bytes=GIB // 2)
    fillers = []
    for _ in range(14):
        allocator.free(allocator.malloc(512 * MIB))
        allocator.malloc(12 * MIB)
        fillers.append(allocator.malloc(500 * MIB))
    for filler in fillers:
        allocator.free(filler)

    # WHEN 1,500 MiB are asked for, with 6.8 GiB reserved and unallocated
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(1500 * MIB)

    # THEN it fails as PyTorch would
    assert str(caught.value) == (
        "CUDA out of memory. Tried to allocate 1.46 GiB. GPU 0 has a total capacity of 8.00 GiB of which 512.00 MiB is"
        " free. Including non-PyTorch memory, this process has 7.00 GiB memory in use. Of the allocated memory 168.00 MiB"
        " is allocated by PyTorch, and 6.84 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory"
        " is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation"
        " for Memory Management "
        " (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )
    assert (caught.value.requested_bytes, caught.value.tried_bytes) == (1500 * MIB, 1500 * MIB)
    assert caught.value.device_free_bytes == 512 * MIB
    assert actions(allocator)[-1] == "oom"
    assert allocator.memory_stats()["num_ooms"] == 1


def test_the_error_names_the_segment_that_was_tried_and_the_limit() -> None:
    allocator = Allocator(100 * MIB, parse_alloc_conf("per_process_memory_fraction:0.1"))
    with pytest.raises(OutOfMemory, match=r"Tried to allocate 20.00 MiB. .* 10.00 MiB allowed; Of the") as caught:
        allocator.malloc(3_000_000)
    assert caught.value.requested_bytes == 3_000_000


def test_the_advice_is_left_out_where_it_was_taken() -> None:
    with pytest.raises(OutOfMemory) as caught:
        Allocator(100 * MIB, parse_alloc_conf("expandable_segments:True")).malloc(GIB)
    assert str(caught.value).endswith("is reserved by PyTorch but unallocated.")


def test_the_device_is_usable_after_the_error() -> None:
    allocator = Allocator(100 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(GIB)
    allocator.malloc(100 * MIB)
    allocator.validate()


@pytest.mark.parametrize(("request_mib", "reused"), [(200, True), (187, True), (186, False), (150, False)])
def test_an_oversize_block_serves_only_requests_of_nearly_its_size(request_mib: int, reused: bool) -> None:
    # GIVEN a cached block of 205 MiB (206 in whole pages), which is oversize (pytorch#44742)
    allocator = Allocator(GIB, parse_alloc_conf("max_split_size_mb:160"))
    cached = allocator.malloc(205 * MIB)
    allocator.free(cached)
    # WHEN less is asked for
    # THEN it is used, and not split, if less than the large segment size would be wasted
    assert (allocator.malloc(request_mib * MIB) == cached) == reused
    assert all(len(segment["blocks"]) == 1 for segment in allocator.segments())


def test_the_first_oversize_block_that_fits_is_released_alone() -> None:
    # GIVEN a full device with cached oversize blocks of 300, 200 and 100 MiB
    allocator = Allocator(600 * MIB, parse_alloc_conf("max_split_size_mb:64"))
    for address in [allocator.malloc(size * MIB) for size in (300, 200, 100)]:
        allocator.free(address)
    # WHEN 150 MiB are asked for
    allocator.malloc(150 * MIB)
    # THEN the 200 went, and nothing else; it was no retry
    assert sorted(segment["total_size"] // MIB for segment in allocator.segments()) == [100, 150, 300]
    assert allocator.memory_stats()["num_alloc_retries"] == 0


def test_oversize_blocks_are_released_from_the_largest_until_they_are_enough() -> None:
    # GIVEN a full device with cached oversize blocks of 300, 200 and 100 MiB
    allocator = Allocator(600 * MIB, parse_alloc_conf("max_split_size_mb:64"))
    for address in [allocator.malloc(size * MIB) for size in (300, 200, 100)]:
        allocator.free(address)
    # WHEN more is asked for than any of them has
    allocator.malloc(450 * MIB)
    # THEN the two largest went
    assert sorted(segment["total_size"] // MIB for segment in allocator.segments()) == [100, 450]


def test_garbage_is_collected_oldest_first_above_the_threshold() -> None:
    # GIVEN half of 1,000 MiB allowed, and cached segments that went unused for long and for a short time
    conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.5"
    allocator = Allocator(1000 * MIB, parse_alloc_conf(conf))
    old, young, busy = allocator.malloc(150 * MIB), allocator.malloc(140 * MIB), allocator.malloc(20 * MIB)
    allocator.free(old)
    for _ in range(10):
        allocator.free(busy)
        busy = allocator.malloc(20 * MIB)
    allocator.free(young)
    # WHEN a new segment is needed
    allocator.malloc(160 * MIB)
    # THEN the old one was given back before, and the young one stays
    totals = [segment["total_size"] // MIB for segment in allocator.segments()]
    assert 150 not in totals
    assert 140 in totals


def test_without_a_memory_fraction_no_garbage_is_collected() -> None:
    allocator = Allocator(1000 * MIB, parse_alloc_conf("garbage_collection_threshold:0.1"))
    allocator.free(allocator.malloc(300 * MIB))
    allocator.malloc(400 * MIB)
    assert "segment_free" not in actions(allocator)


def test_a_request_beyond_the_card_is_refused_at_once_where_that_was_asked_for() -> None:
    # GIVEN a card full of cached memory, which would be released for a request
    allocator = Allocator(100 * MIB, parse_alloc_conf("throw_on_cudamalloc_oom:True"))
    allocator.free(allocator.malloc(60 * MIB))
    # WHEN more is asked for than the card has beside it
    with pytest.raises(OutOfMemory, match=r"preemptively rejected .* Requested size: 66.76 MiB$"):
        allocator.malloc(70_000_000)
    # THEN nothing was released, and it counts as a rejection only
    stats = allocator.memory_stats()
    assert (stats["num_oom_rejections"], stats["num_ooms"], stats["num_alloc_retries"]) == (1, 0, 0)
    assert allocator.reserved_bytes == 60 * MIB
    assert "oom" not in actions(allocator)
    allocator.validate()


def test_the_error_names_other_processes_where_they_are_known() -> None:
    allocator = Allocator(100 * MIB, other_bytes=90 * MIB, other_processes={17: 60 * MIB, 23: 30 * MIB})
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(20 * MIB)
    assert (
        "of which 10.00 MiB is free. Process 17 has 60.00 MiB memory in use. Process 23 has 30.00 MiB memory in use. Including"
        " non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated"
    ) in str(caught.value)
