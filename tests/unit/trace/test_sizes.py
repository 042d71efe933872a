"""How large blocks that are gone were: exact where it follows, and flagged where it does not."""

from __future__ import annotations

from typing import Any

from tests.segments import segment
from tests.unit.snapshot.trees import event, tree
from tests.unit.trace.jobs import traced_device
from vramscope.trace.columns import DeviceTrace
from vramscope.units import MIB

PAGE = 20 * MIB


def sizes(trace: DeviceTrace) -> list[tuple[float, bool]]:
    """Return (MiB, exact) of each allocation."""
    allocations = trace.allocations
    return [
        (size / MIB, exact)
        for size, exact in zip(allocations.block_bytes.tolist(), allocations.is_exact.tolist(), strict=True)
    ]


def made(at_mib: float, size_mib: float) -> dict[str, Any]:
    return event("alloc", int(at_mib * MIB), int(size_mib * MIB))


def freed(at_mib: float, size_mib: float) -> dict[str, Any]:
    return event("free_completed", int(at_mib * MIB), int(size_mib * MIB))


def test_a_rest_of_up_to_a_mebibyte_stays_with_a_block_of_the_large_pool() -> None:
    # GIVEN a block before which nothing is and behind which 1 MiB is left, and one with more
    trace = [made(6, 3), made(0, 5), freed(0, 5), made(0, 4), freed(0, 4)]
    found = traced_device(
        tree(segment((6 * MIB, "free"), (14 * MIB, "live")), traces=[[*trace, freed(6, 3), made(6, 14 - 100 / MIB)]])
    )

    # THEN the first kept it, and the second was split off to its size
    assert sizes(found) == [(6, True), (4, True), (3, True), (14, True)]


def test_what_was_made_right_behind_a_block_from_before_the_trace_tells_where_it_ended() -> None:
    gone = [freed(0, 3), freed(3.5, 2)]
    content = tree(segment((PAGE, "free")), traces=[[made(3.5, 2), *gone]])
    assert sizes(traced_device(content)) == [(3.5, True), (2, True)]


def test_a_block_from_before_the_trace_that_filled_its_place_is_certain() -> None:
    content = tree(segment((3 * MIB, "free"), (17 * MIB, "live")), traces=[[freed(0, 3)]])
    assert sizes(traced_device(content)) == [(3, True), (17, True)]


def test_one_with_room_behind_it_is_not() -> None:
    content = tree(segment((4 * MIB, "free"), (16 * MIB, "live")), traces=[[freed(0, 3)]])
    assert sizes(traced_device(content)) == [(3, False), (16, True)]


def test_a_block_of_the_final_state_that_breaks_the_rule_leaves_the_others_open() -> None:
    # GIVEN a block that kept 2 MiB, which no rule of the recorded settings allows
    kept = segment((6 * MIB, "live"), (14 * MIB, "live"))
    kept["blocks"][0]["requested_size"] = 4 * MIB
    kept["requested_size"] = 18 * MIB - 100
    content = tree(kept, segment((PAGE, "free"), at=PAGE), traces=[[made(0, 4), made(20, 4), freed(20, 4)]])
    assert sizes(traced_device(content)) == [(6, True), (14, True), (4, False)]


def test_where_expandable_segments_may_have_been_on_a_small_rest_is_open() -> None:
    # GIVEN a plain segment in a job that has expandable ones too
    other = segment((PAGE, "free"), at=PAGE, expandable=True)
    trace = [made(0, 19.5), freed(0, 19.5), made(0, 4), freed(0, 4), made(20, 19.5), freed(20, 19.5)]
    found = traced_device(tree(segment((PAGE, "free")), other, traces=[trace]))
    assert sizes(found) == [(19.5, False), (4, True), (19.5, True)]


def test_a_request_of_max_split_size_and_more_takes_a_free_block_whole() -> None:
    content = tree(segment((PAGE, "free")), traces=[[made(0, 12), freed(0, 12), made(0, 11), freed(0, 11)]])
    content["allocator_settings"]["max_split_size"] = 12 * MIB
    assert sizes(traced_device(content)) == [(20, True), (11, True)]


def test_a_block_outside_of_all_segments_is_a_contradiction() -> None:
    found = traced_device(tree(segment((PAGE, "free")), traces=[[made(40, 3), freed(40, 3)]]))
    assert found.contradiction == "1 blocks of the trace have no room in its segments: part of its history is missing"


def test_a_block_that_ends_before_its_request_does_is_a_contradiction() -> None:
    # GIVEN a block of 3 MiB from before the trace, right behind whose first MiB another was made
    content = tree(segment((PAGE, "free")), traces=[[made(1, 2), freed(1, 2), freed(0, 3)]])
    assert traced_device(content).contradiction is not None
