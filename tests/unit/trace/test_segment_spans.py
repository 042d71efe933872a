"""When segments and the mapped pieces of expandable ones were there."""

from __future__ import annotations

from typing import Any

from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, frame, tree
from tests.unit.trace.jobs import traced_device
from vramscope.snapshot.columns import NONE
from vramscope.trace.columns import BEFORE, DeviceTrace
from vramscope.trace.moment import moment_at
from vramscope.units import MIB

PAGE = 20 * MIB
Range = tuple[int, int]


def ranges(trace: DeviceTrace, at: int) -> list[Range]:
    """Return (page, pages) of each segment after an event."""
    state = moment_at(trace, at).state
    pages = zip(state.segment_address.tolist(), state.segment_total_bytes.tolist(), strict=True)
    return [((address - BASE) // PAGE, size // PAGE) for address, size in pages]


def expandable(page: int, pages: int, **more: Any) -> dict[str, Any]:
    return segment((pages * PAGE, "free"), at=page * PAGE, expandable=True, **more)


def mapped(page: int, pages: int, **more: Any) -> dict[str, Any]:
    return event("segment_map", page * PAGE, pages * PAGE, **more)


def unmapped(page: int, pages: int, **more: Any) -> dict[str, Any]:
    return event("segment_unmap", page * PAGE, pages * PAGE, **more)


def test_pieces_side_by_side_are_one_segment() -> None:
    trace = traced_device(tree(expandable(0, 3), traces=[[mapped(1, 1), mapped(2, 1)]]))
    assert [ranges(trace, at) for at in (BEFORE, 0, 1)] == [[(0, 1)], [(0, 2)], [(0, 3)]]


def test_an_unmap_from_the_middle_leaves_two() -> None:
    trace = traced_device(tree(expandable(0, 1), expandable(3, 1), traces=[[mapped(2, 2), unmapped(1, 2)]]))
    assert [ranges(trace, at) for at in (BEFORE, 0, 1)] == [[(0, 2)], [(0, 4)], [(0, 1), (3, 1)]]


def test_pieces_of_different_streams_or_pools_stay_apart() -> None:
    for other in ({"stream": 7}, {"pool": (0, 1)}):
        trace = traced_device(tree(expandable(0, 1), expandable(1, 1, **other), traces=[[event("snapshot")]]))
        assert ranges(trace, 0) == [(0, 1), (1, 1)]


def test_plain_segments_side_by_side_stay_apart() -> None:
    content = tree(
        segment((PAGE, "free")), segment((PAGE, "free"), at=PAGE), traces=[[event("segment_alloc", 0, PAGE)]]
    )
    trace = traced_device(content)
    assert [ranges(trace, at) for at in (BEFORE, 0)] == [[(1, 1)], [(0, 1), (1, 1)]]


def test_a_segment_that_is_gone_keeps_its_stream_and_pool() -> None:
    gone = [event(action, 0, PAGE, stream=5, pool_id=(3, 1)) for action in ("segment_alloc", "segment_free")]
    state = moment_at(traced_device(tree(traces=[gone])), 0).state
    owner = (state.segment_stream, state.segment_pool_a, state.segment_pool_b, state.segment_is_small)
    assert [column.tolist() for column in owner] == [[5], [3], [1], [0]]


def test_what_gave_a_segment_back_is_not_what_made_it() -> None:
    # GIVEN a segment from before the trace, of which only its end is told, with the stack of who ended it
    ended = event("segment_free", 0, PAGE, frames=[frame("empty_cache")])
    assert moment_at(traced_device(tree(traces=[[ended]])), BEFORE).segment_stack.tolist() == [NONE]


def test_maps_and_unmaps_that_cannot_be_leave_the_segments_unknown() -> None:
    for wrong in (
        [mapped(0, 2)],
        [unmapped(0, 1)],
        [mapped(0, 1, stream=5)],
        [mapped(0, 1), mapped(0, 1)],
        [mapped(0, 0)],
    ):
        trace = traced_device(tree(expandable(0, 1), traces=[wrong]))
        assert trace.reserved_bytes is None
        assert len(trace.segments) == 0
        assert any("segment events do not fit" in line for line in trace.notes)


def test_a_range_beyond_64_bits_does_not_fit() -> None:
    trace = traced_device(tree(traces=[[event("segment_unmap", 0, (1 << 64) - 1)]]))
    assert trace.reserved_bytes is None
