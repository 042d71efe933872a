"""The rows of the tables, the facts of a block, and the words about events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, frame, tree
from tests.unit.trace.views import TORCH, described
from vramscope.trace.columns import BEFORE
from vramscope.trace.described import NO_SITE, event_codes
from vramscope.trace.facts import allocation_facts, block_at, block_facts
from vramscope.trace.moment import moment_at
from vramscope.trace.sums import sums_of
from vramscope.trace.tables import (
    Order,
    allocation_order,
    allocation_row,
    event_order,
    segment_rows,
    site_rows,
)
from vramscope.units import KIB, MIB

MINE = frame("train", 4, "/home/me/train.py")
FORWARD = [frame("forward", 7, f"{TORCH}/nn/modules/linear.py"), MINE]
SETUP = [frame("setup", 1, "/home/me/setup.py")]
LARGEST_FIRST, SMALLEST_FIRST = Order("bytes", True), Order("bytes", False)


def content() -> dict[str, Any]:
    """A block from before the trace, one of 512 KiB that comes and goes, and one of 256 KiB that stays."""
    made = segment((MIB, "live"), (256 * KIB, "live"), (768 * KIB, "free"), small=True)
    made["blocks"][0] |= {"frames": SETUP, "requested_size": MIB - 100}
    made["blocks"][1] |= {"frames": FORWARD, "requested_size": 256 * KIB}
    made["requested_size"] = MIB - 100 + 256 * KIB
    trace = [
        event("alloc", MIB, 512 * KIB, frames=FORWARD, time_us=1000),
        event("free_requested", MIB, 512 * KIB, time_us=1500),
        event("free_completed", MIB, 512 * KIB, time_us=1500),
        event("alloc", MIB, 256 * KIB, frames=FORWARD, time_us=2000),
    ]
    return tree(made, traces=[trace])


def test_allocations_come_largest_first_and_say_what_is_known() -> None:
    # GIVEN
    found = described(content())

    # WHEN
    rows = [allocation_row(found, place) for place in allocation_order(found, LARGEST_FIRST).tolist()]

    # THEN
    assert [row["bytes"] for row in rows] == [MIB, 512 * KIB, 256 * KIB]
    old, gone, new = rows
    assert (old["first_event"], old["last_event"], old["lifetime_us"], old["site"]) == (
        None,
        None,
        None,
        "setup (/home/me/setup.py:1)",
    )
    assert (gone["first_event"], gone["last_event"], gone["lifetime_us"], gone["lifetime_events"]) == (0, 2, 500, 2)
    assert (new["category"], new["site"]) == ("activation", "train (/home/me/train.py:4)")


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("bytes", [MIB, 512 * KIB, 256 * KIB]),
        ("lifetime", [MIB, 512 * KIB, 256 * KIB]),
        ("first_event", [256 * KIB, 512 * KIB, MIB]),
        ("address", [512 * KIB, 256 * KIB, MIB]),
    ],
)
def test_allocations_sort_by_each_column(sort: str, expected: list[int]) -> None:
    found = described(content())
    order = allocation_order(found, Order(sort, True))
    assert found.trace.allocations.block_bytes[order].tolist() == expected


def test_allocations_are_filtered_by_text_and_by_moment() -> None:
    found = described(content())
    sizes = found.trace.allocations.block_bytes
    assert sizes[allocation_order(found, SMALLEST_FIRST, text="SETUP")].tolist() == [MIB]
    assert sizes[allocation_order(found, SMALLEST_FIRST, event=0)].tolist() == [512 * KIB, MIB]
    assert sizes[allocation_order(found, SMALLEST_FIRST, event=BEFORE)].tolist() == [MIB]


def test_events_are_filtered_by_kind_and_sorted() -> None:
    found = described(content())
    assert event_order(found, Order("event", False)).tolist() == [0, 1, 2, 3]
    assert event_order(found, Order("event", True), kinds=["free"]).tolist() == [2, 1]
    assert event_order(found, LARGEST_FIRST, kinds=["alloc"]).tolist() == [0, 3]
    assert event_order(found, Order("event", False), text="train").tolist() == [0, 3]
    assert len(event_codes(["segment"])) == 4


def test_an_event_says_what_it_did_and_to_which_allocation() -> None:
    # GIVEN
    found = described(content())

    # WHEN
    made, freed = found.event_row(0), found.event_row(2)

    # THEN
    assert made["label"] == f"alloc 512.0 KiB at 0x{BASE + MIB:x} by train (/home/me/train.py:4)"
    assert made["allocation"] == freed["allocation"]
    assert (freed["action"], freed["site"], freed["pool"]) == ("free_completed", NO_SITE, None)


def test_sites_have_bytes_now_at_the_peak_and_ever() -> None:
    # GIVEN
    found = described(content())

    # WHEN at the end
    rows = site_rows(found, LARGEST_FIRST, event=3)

    # THEN
    setup, train = rows
    assert (setup["bytes"], setup["peak_bytes"], setup["allocated_bytes"]) == (MIB, MIB, MIB)
    assert (train["count"], train["bytes"], train["peak_bytes"]) == (1, 256 * KIB, 512 * KIB)
    assert (train["allocated_bytes"], train["allocations"], train["category"]) == (768 * KIB, 2, "activation")
    assert [row["site"] for row in site_rows(found, LARGEST_FIRST, event=3, text="TRAIN.py")] == [train["site"]]


def test_sites_of_a_file_without_lifetimes_are_those_of_its_final_state() -> None:
    # GIVEN a trace that frees what is still there
    broken = content()
    broken["device_traces"][0].append(event("free_completed", 0, MIB))
    found = described(broken)
    assert found.trace.contradiction is not None

    # WHEN
    rows = site_rows(found, LARGEST_FIRST, event=4)

    # THEN what is not known is None and not 0
    assert [row["bytes"] for row in rows] == [MIB, 256 * KIB]
    assert {(row["peak_bytes"], row["allocated_bytes"], row["allocations"]) for row in rows} == {(None, None, None)}


def test_segments_have_their_free_bytes_and_largest_hole() -> None:
    # GIVEN
    found = described(content())

    # WHEN
    before, after = (segment_rows(found, LARGEST_FIRST, moment_at(found.trace, at)) for at in (BEFORE, 3))

    # THEN
    assert (before[0]["active_bytes"], before[0]["free_bytes"], before[0]["largest_free_bytes"]) == (MIB, MIB, MIB)
    assert (after[0]["free_bytes"], after[0]["blocks"], after[0]["kind"]) == (768 * KIB, 3, "small")


def test_totals_of_a_moment_add_up() -> None:
    found = described(content())
    sums = sums_of(moment_at(found.trace, 0), knows_requests=True)
    assert sums["reserved_bytes"] == (sums["active_bytes"] or 0) + (sums["free_bytes"] or 0) == 2 * MIB
    assert sums["requested_bytes"] == MIB - 100 + 512 * KIB
    assert sums_of(moment_at(found.trace, 0), knows_requests=False)["requested_bytes"] is None


def test_a_block_knows_its_neighbours_and_its_allocation() -> None:
    # GIVEN
    found = described(content())
    moment = moment_at(found.trace, 0)

    # WHEN an address within the second block is asked for
    block = block_at(moment, BASE + MIB + 77)
    assert block is not None
    facts = block_facts(found, moment, block)

    # THEN
    assert (facts["bytes"], facts["first_event"], facts["lifetime"]) == (512 * KIB, 0, "from event 0, gone at event 2")
    assert facts["before"] == {"address": f"0x{BASE:x}", "bytes": MIB, "state": "active_allocated", "allocation": 0}
    assert facts["behind"]["state"] == "inactive"
    assert facts["frames"][0][2] == "forward"
    assert facts["pool"] == "default"
    # AND the free block behind it, and an address outside any segment
    assert block_facts(found, moment, block + 1)["free"] is True
    assert block_at(moment, BASE + 2 * MIB) is None
    assert block_at(moment, 5) is None


def test_an_allocation_that_is_gone_has_no_neighbours() -> None:
    # GIVEN
    found = described(content())
    gone = int(np.flatnonzero(found.trace.allocations.block_bytes == 512 * KIB)[0])

    # WHEN
    facts = allocation_facts(found, gone, 3, moment_at(found.trace, 3))

    # THEN
    assert (facts["segment"], facts["before"], facts["behind"]) == (None, None, None)
    assert facts["lifetime_us"] == 500
