"""The segment map's rows, lines and pieces, and its binary frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dashboard.figures import segment_map
from dashboard.figures.segment_map import CONTINUES, EXPANDABLE, PRIVATE, SHORTENED, SMALL, UNMAPPED
from tests.fake_live_data import make_map
from tests.unit.dashboard.frames import decode
from vramscope.columns import DeviceMap, from_segments
from vramscope.owners import NO_OWNER
from vramscope.units import GIB, MIB

BASE = 0x7F00_0000_0000


def segment(address: int, *sizes_and_states: tuple[int, str], **changes: Any) -> dict[str, Any]:
    """Return one segment in PyTorch's form whose blocks are (bytes, state), one after the other."""
    blocks, at = [], address
    for size, state in sizes_and_states:
        blocks.append({"address": at, "size": size, "requested_size": size, "state": state})
        at += size
    plain = {"device": 0, "address": address, "total_size": at - address, "stream": 0, "segment_type": "large"}
    return {**plain, "segment_pool_id": (0, 0), "is_expandable": False, "blocks": blocks, **changes}


def picture(segments: list[dict[str, Any]], **options: Any) -> segment_map.Picture:
    found = from_segments(segments, device=0)
    return segment_map.build(found, np.zeros(found.block_count, np.uint8), **options)


def live(size: int) -> tuple[int, str]:
    return size, "active_allocated"


def free(size: int) -> tuple[int, str]:
    return size, "inactive"


def test_a_segment_is_a_row_and_its_blocks_are_pieces() -> None:
    # GIVEN one segment of three blocks, one of them pending
    found = picture([segment(BASE, live(4 * MIB), (2 * MIB, "active_pending_free"), free(14 * MIB))])
    # THEN it is one line whose pieces have the blocks' sizes and states
    assert found.line_address.tolist() == [BASE]
    assert found.line_bytes.tolist() == [20 * MIB]
    assert found.piece_units.tolist() == [8192, 4096, 28672]
    assert found.piece_state.tolist() == [0, 1, 2]


def test_an_address_in_the_upper_half_of_64_bits_is_not_negative() -> None:
    assert picture([segment((1 << 64) - 8 * MIB, live(4 * MIB))]).line_address.tolist() == [(1 << 64) - 8 * MIB]


def test_rows_are_sorted_by_size_or_by_address() -> None:
    segments = [
        segment(BASE, live(2 * MIB)),
        segment(BASE + GIB, live(20 * MIB)),
        segment(BASE + 2 * GIB, live(4 * MIB)),
    ]
    assert picture(segments).line_bytes.tolist() == [20 * MIB, 4 * MIB, 2 * MIB]
    assert picture(segments, sort="address").line_bytes.tolist() == [2 * MIB, 20 * MIB, 4 * MIB]


def test_pools_can_be_shown_alone() -> None:
    segments = [segment(BASE, live(2 * MIB), segment_type="small"), segment(BASE + GIB, live(20 * MIB))]
    assert picture(segments, pool="small").line_bytes.tolist() == [2 * MIB]
    assert picture(segments, pool="large").line_bytes.tolist() == [20 * MIB]
    assert len(picture(segments).line_bytes) == 2


def test_ranges_of_one_expandable_segment_share_a_row_with_the_gap_unmapped() -> None:
    # GIVEN two mapped ranges with 4 MiB between them
    ranges = [
        segment(BASE, live(20 * MIB), is_expandable=True),
        segment(BASE + 24 * MIB, free(40 * MIB), is_expandable=True),
    ]
    found = picture(ranges)
    # THEN they are one row, and the gap lies between them with its size
    assert found.row_flags.tolist() == [EXPANDABLE]
    assert found.piece_state.tolist() == [0, UNMAPPED, 2]
    assert found.piece_units.tolist() == [20 * 2048, 4 * 2048, 40 * 2048]
    assert found.gap_piece.tolist() == [1]
    assert found.gap_bytes.tolist() == [4 * MIB]


@pytest.mark.parametrize(
    "change",
    [{"stream": 7}, {"segment_pool_id": (0, 1)}, {"segment_type": "small"}, {"is_expandable": False}],
)
def test_ranges_that_differ_are_rows_of_their_own(change: dict[str, Any]) -> None:
    first = segment(BASE, live(20 * MIB), is_expandable=True)
    second = segment(BASE + 24 * MIB, live(20 * MIB), **{"is_expandable": True, **change})
    assert len(picture([first, second]).row_flags) == 2


def test_a_huge_gap_is_drawn_shorter_and_says_so_but_keeps_its_size() -> None:
    ranges = [
        segment(BASE, live(32 * MIB), is_expandable=True),
        segment(BASE + 90 * GIB, live(32 * MIB), is_expandable=True),
    ]
    found = picture(ranges)
    assert found.row_flags.tolist() == [EXPANDABLE | SHORTENED]
    assert found.piece_units.tolist()[1] == 8 * MIB // 512
    assert found.gap_bytes.tolist() == [90 * GIB - 32 * MIB]


def test_a_long_row_goes_on_in_further_lines_and_a_block_across_their_ends_is_cut() -> None:
    # GIVEN a row of 300 MiB where lines are 64 MiB, with a block of 100 MiB at its begin
    found = picture([segment(BASE, live(100 * MIB), free(200 * MIB))])
    # THEN it has five lines, the block is two pieces, and nothing is lost
    assert found.line_bytes.tolist() == [64 * MIB] * 5
    assert found.line_address.tolist() == [BASE + n * 64 * MIB for n in range(5)]
    assert found.piece_units.tolist()[:2] == [64 * 2048, 36 * 2048]
    assert [int(state) & CONTINUES for state in found.piece_state] == [0, 8, 0, 8, 8, 8]
    assert int(found.piece_units.sum()) * 512 == 300 * MIB


def test_a_row_up_to_two_lines_is_not_cut() -> None:
    assert picture([segment(BASE, live(128 * MIB))]).line_bytes.tolist() == [128 * MIB]


def test_the_length_of_lines_is_a_power_of_two_that_shows_all_in_about_48() -> None:
    assert segment_map.line_bytes(0) == 64 * MIB
    assert segment_map.line_bytes(48 * GIB) == GIB
    assert segment_map.line_bytes(48 * GIB + 1) == 2 * GIB


def test_private_and_small_pools_and_streams_are_told() -> None:
    pointer = 0x7F12_3456_7890
    found = picture(
        [
            segment(BASE, live(2 * MIB), segment_type="small", segment_pool_id=(0, 3)),
            segment(BASE + GIB, live(MIB), stream=pointer),
        ]
    )
    assert found.row_flags.tolist() == [SMALL | PRIVATE, 0]
    assert [found.streams[n] for n in found.row_stream] == ["0", str(pointer)]
    assert [found.pools[n] for n in found.row_pool] == ["(0, 3)", "(0, 0)"]


def test_a_map_without_segments_gives_an_empty_picture() -> None:
    header, arrays = decode(segment_map.encode(picture([]), {}))
    assert header["lines"] == header["pieces"] == 0
    assert arrays["line_first"].tolist() == [0]


def test_the_frame_carries_every_array_and_the_header() -> None:
    found = make_map(3000, seed=3)
    owner = np.where(found.block_state == 2, NO_OWNER, 4).astype(np.uint8)
    built = segment_map.build(found, owner)
    header, arrays = decode(segment_map.encode(built, {"token": "7.1", "name": "é"}))
    assert (header["token"], header["name"]) == ("7.1", "é")
    for name, array in arrays.items():
        assert np.array_equal(array, getattr(built, name)), name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sort", segment_map.SORTS)
def test_every_block_is_drawn_once_with_its_address_and_size(seed: int, sort: str) -> None:
    # GIVEN maps of any form
    found = make_map(2000, seed=seed, expandable_share=0.5, total_bytes=72 * GIB)
    built = segment_map.build(found, np.zeros(found.block_count, np.uint8), sort=sort)
    # WHEN the blocks are read back from lines and pieces
    drawn = blocks_of(built)
    # THEN they are the map's
    assert drawn == dict(zip(found.block_address.tolist(), found.block_bytes.tolist(), strict=True))


def blocks_of(built: segment_map.Picture) -> dict[int, int]:
    """Return the size of each mapped block by address, put together from its pieces."""
    gaps = dict(zip(built.gap_piece.tolist(), built.gap_bytes.tolist(), strict=True))
    found: dict[int, int] = {}
    begin = 0
    for line in range(len(built.line_row)):
        at = int(built.line_address[line])
        for piece in range(int(built.line_first[line]), int(built.line_first[line + 1])):
            state = int(built.piece_state[piece])
            size = int(gaps.get(piece, int(built.piece_units[piece]) * 512))
            if state & CONTINUES:
                if state & 7 != UNMAPPED:
                    found[begin] += size
            else:
                begin = at
                if state != UNMAPPED:
                    found[begin] = size
            at += size
    return found


def test_a_big_map_costs_six_bytes_a_block() -> None:
    found: DeviceMap = make_map(50_000)
    frame = segment_map.encode(segment_map.build(found, np.zeros(found.block_count, np.uint8)), {})
    assert len(frame) < 7 * found.block_count
