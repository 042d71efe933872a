"""Whose memory a block is: the rules, and that the bytes add up exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_live_data import make_map
from tests.segments import BASE, device_map, segment
from vramscope.agent.categories import CATEGORIES, CODE
from vramscope.columns import INACTIVE, DeviceMap
from vramscope.owners import NO_OWNER, RULES, assign, top_tensors, totals
from vramscope.units import MIB

BLOCKS = device_map(segment((4 * MIB, "live"), (6 * MIB, "pending"), (2 * MIB, "free"), (8 * MIB, "live")))


def with_tensors(found: DeviceMap, *tensors: tuple[int, int, str, str]) -> DeviceMap:
    """Return the map with (offset from BASE, bytes, category, name) as its named tensors."""
    return replace(
        found,
        tensor_address=np.array([BASE + offset for offset, *_ in tensors], np.uint64),
        tensor_bytes=np.array([size for _, size, *_ in tensors], np.uint64),
        tensor_category=np.array([CODE[category] for *_, category, _ in tensors], np.uint8),
        tensor_labels=tuple((name, "(1,)", "float32") for *_, name in tensors),
    )


def with_boundary(found: DeviceMap, *offsets: int) -> DeviceMap:
    return replace(found, boundary_address=np.array([BASE + offset for offset in offsets], np.uint64))


def categories(found: DeviceMap) -> list[str | None]:
    return [None if code == NO_OWNER else CATEGORIES[code] for code in assign(found).category.tolist()]


def active_bytes(found: DeviceMap) -> int:
    return int(found.block_bytes[found.block_state != INACTIVE].sum())


def test_a_block_belongs_to_the_tensor_that_lies_in_it() -> None:
    # GIVEN a parameter a little smaller than its block
    found = with_tensors(BLOCKS, (0, 4 * MIB - 100, "parameter", "head.weight"))

    # WHEN owners are assigned
    owners = assign(found)

    # THEN the block has its name, and all of the block counts as its bytes
    assert owners.tensor.tolist() == [0, -1, -1, -1]
    assert categories(found) == ["parameter", "unknown", None, "unknown"]
    assert owners.rule(0) == RULES["named"]
    assert owners.rule(2) is None
    assert totals(found, owners) == {"unknown": 14 * MIB, "parameter": 4 * MIB}


def test_a_block_is_an_activation_if_it_was_not_live_at_the_end_of_the_last_step() -> None:
    # GIVEN a boundary at which only the first block was live
    found = with_boundary(BLOCKS, 0, 99 * MIB)

    # THEN what came since is an activation, and what was there before is not known
    assert categories(found) == ["unknown", "activation", None, "activation"]
    assert assign(found).rule(3) == RULES["activation"]
    assert assign(found).rule(0) == RULES["unknown"]


def test_without_a_boundary_nothing_is_called_an_activation() -> None:
    assert categories(BLOCKS) == ["unknown", "unknown", None, "unknown"]


def test_at_an_empty_boundary_everything_is_an_activation() -> None:
    assert categories(with_boundary(BLOCKS)) == ["activation", "activation", None, "activation"]


def test_a_tensor_names_no_block_that_is_free_too_short_or_elsewhere() -> None:
    # GIVEN tensors in a free block, across two blocks, before and behind all, and an empty one
    found = with_tensors(
        BLOCKS,
        (10 * MIB, MIB, "gradient", "in a free block"),
        (3 * MIB, 2 * MIB, "gradient", "across two"),
        (-MIB, MIB, "gradient", "before"),
        (20 * MIB, MIB, "gradient", "behind"),
        (0, 0, "gradient", "empty"),
    )
    # THEN none of them owns anything
    assert categories(found) == ["unknown", "unknown", None, "unknown"]
    assert all(row.name == "" for row in top_tensors(found, assign(found)))


def test_the_largest_of_several_tensors_names_the_block_and_each_is_listed_with_its_bytes() -> None:
    # GIVEN a flat buffer's block with two parameters in it and a gap behind them
    found = with_tensors(
        BLOCKS, (12 * MIB, 2 * MIB, "parameter", "small"), (14 * MIB, 5 * MIB, "optimizer state", "large")
    )

    # WHEN owners are listed
    owners = assign(found)
    rows = [(row.name, row.bytes) for row in top_tensors(found, owners) if row.name]

    # THEN the larger names the block and has what neither covers
    assert owners.tensor[3] == 1
    assert rows == [("large", 6 * MIB), ("small", 2 * MIB)]
    assert totals(found, owners) == {"unknown": 10 * MIB, "parameter": 2 * MIB, "optimizer state": 6 * MIB}


def test_bytes_that_two_tensors_share_count_once() -> None:
    # GIVEN a flat buffer that is registered itself, and a view in it
    found = with_tensors(BLOCKS, (12 * MIB + 512, MIB, "parameter", "view"), (12 * MIB, 8 * MIB, "parameter", "flat"))
    owners = assign(found)

    # THEN the flat buffer has the block, and the view has no row of its own
    assert [row.name for row in top_tensors(found, owners) if row.name] == ["flat"]
    assert totals(found, owners)["parameter"] == 8 * MIB


def test_the_first_of_two_equal_tensors_names_the_block() -> None:
    found = with_tensors(BLOCKS, (0, MIB, "parameter", "tied.a"), (0, MIB, "parameter", "tied.b"))
    assert assign(found).tensor[0] == 0


def test_the_list_is_cut_at_the_limit_and_keeps_the_largest() -> None:
    found = with_tensors(BLOCKS, (0, MIB, "parameter", "weight"))
    rows = top_tensors(found, assign(found), 2)
    assert [(row.name, row.bytes, row.address) for row in rows] == [
        ("", 8 * MIB, BASE + 12 * MIB),
        ("", 6 * MIB, BASE + 4 * MIB),
    ]
    assert rows[0].rule == RULES["unknown"]


def test_an_empty_map_has_no_owners() -> None:
    found = with_tensors(device_map(), (0, MIB, "parameter", "weight"))
    owners = assign(found)
    assert (top_tensors(found, owners), totals(found, owners)) == ([], {})


@given(st.lists(st.tuples(st.integers(-2, 45), st.integers(0, 20), st.integers(0, 4)), max_size=12), st.booleans())
def test_totals_and_rows_add_up_to_the_active_bytes(spans: list[tuple[int, int, int]], boundary: bool) -> None:
    # GIVEN any tensors over a map, overlapping or outside of it
    tensors = [(at * MIB // 2, size * MIB // 2, CATEGORIES[code], f"t{i}") for i, (at, size, code) in enumerate(spans)]
    found = with_tensors(with_boundary(BLOCKS, 0) if boundary else BLOCKS, *tensors)

    # WHEN bytes are summed by category and by row
    owners = assign(found)

    # THEN both are the active bytes, and no row is empty
    rows = top_tensors(found, owners)
    assert sum(totals(found, owners).values()) == active_bytes(found)
    assert sum(row.bytes for row in rows) == active_bytes(found)
    assert all(row.bytes > 0 for row in rows)


def test_a_large_map_adds_up_too() -> None:
    found = make_map(20_000)
    owners = assign(found)
    assert sum(totals(found, owners).values()) == active_bytes(found)
    assert sum(row.bytes for row in top_tensors(found, owners)) == active_bytes(found)
