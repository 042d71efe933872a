"""A view of a timeline is held against a walk over all events and allocations."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.segments import segment
from tests.unit.snapshot.trees import event, tree
from tests.unit.trace.jobs import traced_device
from vramscope.trace import timeline_view
from vramscope.trace.columns import BEFORE, DeviceTrace
from vramscope.trace.extremes import CHUNK, Extremes
from vramscope.trace.timeline_view import (
    BLOCK_BYTES,
    FIRST_CHUNK,
    REQUESTED_BYTES,
    STEP,
    TIME,
    Timeline,
    timeline_of,
    view,
)
from vramscope.units import MIB


def churn(lives: list[tuple[int, int]]) -> dict[str, Any]:
    """Return a snapshot in which block ``i`` of 1 MiB is there before the trace, and small ones come and go as ``lives`` says."""
    old = segment((MIB, "live"), (MIB, "free"), small=True)
    moments = []
    for number, (start, length) in enumerate(lives):
        moments += [(start, 1, number), (start + length, 0, number)]
    trace = []
    for time, is_alloc, number in sorted(moments):
        place = {"at": MIB + number * 1024, "size": 1000, "time_us": 1_000_000 + time}
        kinds = ("alloc",) if is_alloc else ("free_requested", "free_completed")
        trace += [event(kind, place["at"], place["size"], time_us=place["time_us"]) for kind in kinds]
    return tree(old, traces=[trace])


def timeline(content: dict[str, Any]) -> Timeline:
    found = timeline_of(traced_device(content))
    assert found is not None
    return found


lifetimes = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100)), min_size=1, max_size=40)


def truth(trace: DeviceTrace, position: np.ndarray[Any, Any], begin: float, at: float) -> int:
    """Return the bytes that are there at a position, by looking at every allocation."""
    own, total = trace.allocations, 0
    for index in range(len(own)):
        start = begin if own.first_event[index] == BEFORE else position[own.first_event[index]]
        end = np.inf if own.last_event[index] == trace.event_count else position[own.last_event[index]]
        total += int(own.block_bytes[index]) if (start <= at or own.first_event[index] == BEFORE) and at < end else 0
    return total


@settings(deadline=None)
@given(
    lives=lifetimes,
    name=st.sampled_from([TIME, STEP]),
    width=st.integers(1, 60),
    most=st.integers(1, 50),
    data=st.data(),
)
def test_columns_are_exact_at_their_edges_and_within(
    lives: list[tuple[int, int]], name: str, width: int, most: int, data: st.DataObject
) -> None:
    # GIVEN a trace, and a range of it
    found = timeline(churn(lives))
    axis = found.axes[name]
    low = data.draw(st.floats(axis.begin, axis.end - 0.5))
    high = data.draw(st.floats(low + 0.25, axis.end))

    # WHEN
    shown = view(found, axis, low, high, width, most)

    # THEN the level at each left edge is what a walk over all allocations finds
    edges = shown.begin + np.arange(width) * ((shown.end - shown.begin) / width)
    assert shown.level.tolist() == [truth(found.trace, axis.position, axis.begin, edge) for edge in edges]
    # AND the extremes are those of the edge and of every event within the column
    for column, edge in enumerate(edges):
        right = edges[column + 1] if column + 1 < width else shown.end
        inside = np.flatnonzero((axis.position > edge) & (axis.position < right))
        levels = [shown.level[column], *found.level[inside + 1]]
        assert (shown.low[column], shown.high[column]) == (min(levels), max(levels))
    # AND the rest is what the drawn ones leave, at every edge
    for column, edge in enumerate(edges):
        drawn = shown.size_bytes[(shown.start <= edge) & (edge < shown.stop)].sum()
        assert shown.rest[column] == shown.level[column] - drawn


@settings(deadline=None)
@given(lives=lifetimes, most=st.integers(1, 6), chunk=st.sampled_from([1, 3, FIRST_CHUNK]), data=st.data())
def test_those_drawn_have_the_largest_area_in_view(
    lives: list[tuple[int, int]], most: int, chunk: int, data: st.DataObject
) -> None:
    # GIVEN a range, and allocations that are looked at in one go or in several
    found = timeline(churn(lives))
    axis = found.axes[STEP]
    low = data.draw(st.integers(-1, len(axis.position) - 1))
    high = data.draw(st.integers(low + 1, len(axis.position)))

    # WHEN
    with mock.patch.object(timeline_view, "FIRST_CHUNK", chunk):
        shown = view(found, axis, low, high, 10, most)

    # THEN
    own = axis.by_area
    overlap = np.minimum(own.stop, high) - np.maximum(own.start, low)
    areas = np.sort((overlap * own.size_bytes)[overlap > 0])[::-1]
    drawn = (np.minimum(shown.stop, high) - np.maximum(shown.start, low)) * shown.size_bytes
    assert np.sort(drawn)[::-1].tolist() == areas[:most].tolist()
    assert shown.visible == len(areas)
    # AND they are in the order in which they were made
    first = found.trace.allocations.first_event[shown.allocation]
    assert np.all(first[1:] >= first[:-1])


def test_what_was_there_before_the_trace_begins_where_the_trace_begins() -> None:
    # GIVEN a block of 1 MiB of which no event tells
    found = timeline(churn([(5, 10)]))

    # WHEN
    shown = view(found, found.axes[TIME], 0, 1e18, 4)

    # THEN
    assert (shown.start[0], shown.stop[0]) == (found.axes[TIME].begin, found.axes[TIME].end)
    assert shown.size_bytes[0] == MIB
    assert shown.begin == 1_000_004


def test_a_range_outside_the_trace_becomes_the_whole_trace() -> None:
    found = timeline(churn([(5, 10)]))
    shown = view(found, found.axes[STEP], 50, 60, 4)
    assert (shown.begin, shown.end) == (-1, 3)


def test_a_file_without_times_has_steps_only() -> None:
    # GIVEN
    content = churn([(5, 10)])
    for entry in content["device_traces"][0]:
        del entry["time_us"]

    # WHEN
    found = timeline(content)

    # THEN
    assert list(found.axes) == [STEP]


def test_times_that_fall_back_do_not_turn_the_axis_round() -> None:
    # GIVEN a clock that was read by two threads
    content = churn([(5, 10), (20, 5)])
    content["device_traces"][0][2]["time_us"] -= 8

    # WHEN
    position = timeline(content).axes[TIME].position

    # THEN
    assert np.all(np.diff(position) >= 0)


def test_bytes_are_of_blocks_where_all_are_certain_and_else_of_requests() -> None:
    # GIVEN one whose sizes are certain, and one with a block in a private pool, which may have kept all of its segment
    certain = churn([(5, 10)])
    large = segment((40 * MIB, "free"), pool=(3, 0))
    size = 25 * MIB
    gone = [event("alloc", 0, size), event("free_requested", 0, size), event("free_completed", 0, size)]
    uncertain = tree(large, traces=[gone])

    # WHEN, THEN
    assert timeline(certain).basis == BLOCK_BYTES
    found = timeline(uncertain)
    assert found.basis == REQUESTED_BYTES
    assert view(found, found.axes[STEP], -1, 3, 4).peak[0] == size


def test_there_is_no_timeline_without_a_trace_or_where_it_contradicts_the_state() -> None:
    # GIVEN a trace that frees what the final state still has
    live = segment((MIB, "live"), (MIB, "free"), small=True)
    contradicting = tree(live, traces=[[event("alloc", 0, 1000), event("free_completed", 0, 1000)]])

    # WHEN, THEN
    assert timeline_of(traced_device(tree(live))) is None
    assert timeline_of(traced_device(contradicting)) is None


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK * 5 + 3])
@settings(deadline=None)
@given(data=st.data())
def test_extremes_are_those_of_every_range(count: int, data: st.DataObject) -> None:
    # GIVEN
    values = np.random.default_rng(count).integers(-1000, 1000, count)
    ranges = []
    for _ in range(20):
        begin = data.draw(st.integers(0, count - 1))
        ranges.append((begin, data.draw(st.integers(begin + 1, count))))

    # WHEN
    low, high = Extremes(values).over(*(np.array(bound) for bound in zip(*ranges, strict=True)))

    # THEN
    assert low.tolist() == [values[begin:end].min() for begin, end in ranges]
    assert high.tolist() == [values[begin:end].max() for begin, end in ranges]


def test_a_trace_with_more_than_any_device_has_shows_no_timeline() -> None:
    # GIVEN a segment of a petabyte that came and went
    made = churn([(5, 10)])
    made["device_traces"][0] += [event(kind, 1 << 40, 1 << 50) for kind in ("segment_alloc", "segment_free")]
    # THEN
    trace = traced_device(made)
    assert trace.contradiction == "its events have sizes beyond what any device has"
    assert timeline_of(trace) is None
