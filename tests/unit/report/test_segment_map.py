"""The picture of the segments: each block at its place and in its colour, the largest segments first."""

from __future__ import annotations

import re

from tests.segments import device_map, segment
from vramscope.report.segment_map import COLUMNS, LEFT, MOST_LINES, left_out, segment_map
from vramscope.units import MIB


def drawn(*segments: dict[str, object]) -> str:
    state = device_map(*segments)
    return segment_map(state, lambda block: 4, lambda block: f"block {block}")


def test_blocks_lie_where_they_are_in_their_segment() -> None:
    text = drawn(segment((4 * MIB, "live"), (12 * MIB, "free"), (16 * MIB, "pending")))
    found = re.findall(r'<rect class="block (\S+)" x="(\d+)" y="0" width="(\d+)"', text)
    quarter = COLUMNS // 8
    assert [colour for colour, _, _ in found] == ["owner-4", "free", "pending"]
    assert abs(int(found[1][1]) - LEFT - quarter) <= 1
    assert sum(int(width) for _, _, width in found) == COLUMNS
    assert "<title>block 2</title>" in text


def test_blocks_too_narrow_to_tell_are_drawn_without_words() -> None:
    text = drawn(segment(*((MIB // 2, "live"), (MIB // 2, "free")) * 400))
    assert "<title>" not in text
    assert 'class="owner-4"' in text
    assert 'class="free"' in text


def test_the_largest_segments_come_first_and_the_others_are_counted() -> None:
    segments = [segment((size * MIB, "live"), at=size << 30) for size in range(1, MOST_LINES + 4)]
    text = drawn(*segments)
    assert re.findall(r">(\d+\.?\d*) MiB<", text)[0].startswith(str(MOST_LINES + 3))
    assert text.count("<rect") == MOST_LINES
    assert left_out(device_map(*segments)) == (3, 6 * MIB)


def test_no_segments_is_an_empty_picture() -> None:
    assert "<rect" not in drawn()
