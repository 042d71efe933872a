"""Two sides: every table adds up to the total difference, and stacks are the same by what they say, not by their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.compare.jobs import FORWARD, LOOP, ONLY_TORCH, STEP, Call, content_of, job, traced
from vramscope.compare.difference import Difference, difference
from vramscope.compare.rows import Row, cut, total
from vramscope.compare.side import side_of
from vramscope.errors import BadInputError
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.opening import open_traced
from vramscope.units import MIB

PUBLISHED = Path(__file__).parents[4] / "shared" / "cases" / "snapshots"

stacks = st.sampled_from([FORWARD, STEP, LOOP, ONLY_TORCH, ()])
calls = st.lists(st.tuples(st.integers(1, 30 * MIB), stacks), min_size=1, max_size=12)


def compared(a: TracedSnapshot, b: TracedSnapshot, at_a: str = "end", at_b: str = "end", **options: bool) -> Difference:
    return difference(side_of(a, name="a", at=at_a), side_of(b, name="b", at=at_b), **options)


def by_label(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {row.label: row for row in rows}


def figure(found: Difference, name: str) -> tuple[int | None, int | None, int | None]:
    (row,) = (total for total in found.totals if total.name == name)
    return row.a, row.b, row.difference


def check_sums(found: Difference) -> None:
    """Every table adds up to the totals of both sides, cut or not."""
    for rows, name in (
        *((table, "active_bytes") for table in (found.categories, found.sites, found.stacks)),
        (found.segments, "reserved_bytes"),
    ):
        for shown in (rows, cut(rows, 2)):
            sums = total(shown)
            assert (sums.a_bytes, sums.b_bytes, sums.difference_bytes) == figure(found, name)
    assert (total(found.segments).a_count, total(found.segments).b_count) == figure(found, "segments")[:2]


@settings(deadline=None)
@given(a=calls, b=calls)
def test_each_table_adds_up_to_the_difference_of_the_totals(a: list[Call], b: list[Call]) -> None:
    check_sums(compared(job(*a), job(*b)))


@settings(deadline=None)
@given(made=calls, a=st.integers(0, 11), b=st.integers(0, 11))
def test_two_moments_of_one_file_add_up_too(made: list[Call], a: int, b: int) -> None:
    found = job(*made)
    check_sums(compared(found, found, *(str(event % found.traces[0].event_count) for event in (a, b))))


def test_a_file_against_itself_has_no_difference() -> None:
    found = compared(job((5 * MIB, FORWARD)), job((5 * MIB, FORWARD)))
    assert {row.difference for row in found.totals} == {0}
    for rows in (found.categories, found.sites, found.stacks, found.segments):
        assert [row.change for row in rows] == ["the same"]


def test_what_is_only_on_one_side_has_grown_or_shrunk_is_told_apart_and_the_largest_comes_first() -> None:
    # GIVEN a job, and one where the optimizer came, activations grew and something else went
    a = job((40 * MIB, FORWARD), (8 * MIB, LOOP))
    b = job((40 * MIB, FORWARD), (40 * MIB, FORWARD), (24 * MIB, STEP))

    # WHEN
    sites = compared(a, b).sites

    # THEN
    assert [(row.label, row.change, row.difference_bytes) for row in sites] == [
        ("forward (/home/ada/model.py:30)", "grown", 40 * MIB),
        ("step (/home/ada/train.py:60)", "only in B", 24 * MIB),
        ("main (/home/ada/train.py:90)", "only in A", -8 * MIB),
    ]
    assert (sites[0].a_count, sites[0].b_count) == (1, 2)


def test_stacks_are_matched_by_their_frames_whatever_their_numbers() -> None:
    # GIVEN two files that met the same stacks in another order, and one stack of their own
    a = job((4 * MIB, LOOP), (6 * MIB, FORWARD))
    b = job((6 * MIB, FORWARD), (4 * MIB, STEP), (4 * MIB, LOOP))

    # WHEN
    found = compared(a, b)

    # THEN
    assert [(row.change, row.label) for row in found.stacks] == [
        ("only in B", "step (/home/ada/train.py:60)"),
        ("the same", "forward (/home/ada/model.py:30)"),
        ("the same", "main (/home/ada/train.py:90)"),
    ]


def test_lines_can_be_ignored_and_are_not_unless_asked() -> None:
    # GIVEN the same function, one line further down
    moved = tuple((file, line + 1, function) for file, line, function in LOOP)
    a, b = job((4 * MIB, LOOP)), job((4 * MIB, moved))

    # THEN
    for table in ("sites", "stacks"):
        assert {row.change for row in getattr(compared(a, b), table)} == {"only in A", "only in B"}
        (row,) = getattr(compared(a, b, ignore_lines=True), table)
        assert (row.change, row.label) == ("the same", "main (/home/ada/train.py)")


def test_what_has_no_stack_is_a_row_of_its_own() -> None:
    found = compared(job((4 * MIB, ())), job((4 * MIB, ()), (2 * MIB, ONLY_TORCH)))
    assert by_label(found.sites)["no stack recorded"].a_bytes == 4 * MIB
    assert by_label(found.sites)["no frame outside torch"].b_bytes == 2 * MIB
    assert by_label(found.categories)["unknown"].a_bytes == 4 * MIB


def test_two_moments_of_one_file_show_what_came_between_them() -> None:
    # GIVEN a job that makes something large after its second event and drops it at the end
    found = job((4 * MIB, LOOP), (600 * MIB, FORWARD), 1)

    # WHEN
    changed = compared(found, found, at_a="1", at_b="peak")

    # THEN
    assert figure(changed, "active_bytes") == (4 * MIB, 604 * MIB, 600 * MIB)
    assert figure(changed, "peak_active_bytes")[2] == 0
    assert by_label(changed.sites)["forward (/home/ada/model.py:30)"].change == "only in B"
    assert by_label(changed.segments)["large, from 512 to 1024 MiB, default stream"].b_count == 1


def test_streams_of_two_files_are_one_kind_and_those_of_one_file_are_not() -> None:
    # GIVEN a segment on a stream that is a pointer, another one in each file
    contents = [content_of((4 * MIB, LOOP)) for _ in range(2)]
    for content, stream in zip(contents, (0x7F10, 0x7F20), strict=True):
        content["segments"][0]["stream"] = stream
        content["device_traces"] = [[]]
    a, b = map(traced, contents)

    # THEN
    assert [row.label for row in compared(a, b).segments] == ["large, 20 MiB, other streams"]
    assert [row.label for row in compared(a, a).segments] == ["large, 20 MiB, stream 0x7f10"]


def test_what_a_file_does_not_tell_is_none_and_not_zero() -> None:
    # GIVEN no trace, so no peak
    content = content_of((4 * MIB, LOOP))
    content["device_traces"] = [[]]
    assert figure(compared(traced(content), job((4 * MIB, LOOP))), "peak_active_bytes") == (None, 4 * MIB, None)


@pytest.mark.parametrize(
    ("device", "at", "words"),
    [
        (3, "end", "a has no device 3; it has 0"),
        (0, "oom", "recorded no out-of-memory"),
        (0, "99", "has no event 99; its last is 1"),
        (0, "noon", "'noon' is no moment; give end, peak, oom or the number of an event"),
        (0, "-1", "'-1' is no moment"),
    ],
)
def test_a_side_that_is_not_there_is_one_line(device: int, at: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words) as refused:
        side_of(job((4 * MIB, LOOP)), name="a", device=device, at=at)
    assert "\n" not in str(refused.value)


def test_the_moment_of_an_out_of_memory_is_on_the_device_that_had_it() -> None:
    # GIVEN a second device, which asked for more than there was
    content = content_of((4 * MIB, LOOP))
    asked = {"action": "oom", "size": 2**40, "device_free": MIB, "stream": 0, "time_us": 1, "frames": []}
    content["device_traces"].append([asked])
    found = traced(content)

    # THEN
    assert side_of(found, name="a", at="oom").trace.device == 1
    assert side_of(found, name="a").trace.device == 0


def test_a_trace_that_does_not_fit_leaves_only_the_end() -> None:
    # GIVEN a trace that frees what is still there
    content = content_of((4 * MIB, LOOP))
    content["device_traces"][0].append({**content["device_traces"][0][-1], "action": "free_completed"})
    found = traced(content)

    # THEN
    assert compared(found, found).totals
    with pytest.raises(BadInputError, match="only the end"):
        side_of(found, name="a", at="0")
    with pytest.raises(BadInputError, match="has no peak"):
        side_of(found, name="a", at="peak")


def test_a_file_that_contradicts_itself_is_refused() -> None:
    content = content_of((4 * MIB, LOOP))
    content["segments"][0]["active_size"] += 512
    with pytest.raises(BadInputError, match=r"a, device 0: .*active_size.*nothing can be derived"):
        side_of(traced(content), name="a")


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published snapshots are not here")
@pytest.mark.parametrize("name", ["01", "06", "09", "10", "14", "19", "22"])
def test_published_snapshots_add_up_from_one_moment_to_another(name: str) -> None:
    (path,) = PUBLISHED.glob(f"{name}-*.pickle")
    found = open_traced(path)
    end = side_of(found, name=name)
    middle = end.trace.event_count // 2
    can_step = end.trace.event_count and end.trace.contradiction is None and end.trace.reserved_bytes is not None
    check_sums(difference(side_of(found, name=name, at=str(middle)) if can_step else end, end))
