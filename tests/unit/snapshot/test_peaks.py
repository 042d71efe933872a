"""Peaks are walked back from the final state; the simulated allocator's own counters know the true ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.segments import segment
from tests.unit.snapshot.trees import event, oom, tree
from vramscope.allocator import Allocator, parse_alloc_conf
from vramscope.snapshot.build import build_snapshot
from vramscope.snapshot.summary import summarize_snapshot
from vramscope.trace.build import traced
from vramscope.units import GIB, KIB, MIB

EXPANDABLE = "expandable_segments:True"
ROUNDING = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"

# Each is a request's size, or the place of a live block to free.
small_sizes = st.integers(1, MIB)
any_sizes = st.one_of(small_sizes, st.integers(1, 40 * MIB))


def figures(content: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of device 0, and what is missing."""
    found = build_snapshot(content, container="", file_bytes=GIB, progress=lambda done, total: None)
    summary = summarize_snapshot(traced(found))
    return summary["devices"][0], summary["missing"]


def levels(allocator: Allocator, key: str) -> int:
    return int(allocator.memory_stats()[f"{key}_bytes"]["all"]["current"])


def run(allocator: Allocator, sizes: Iterable[int], frees: Iterable[int]) -> tuple[int, int]:
    """Allocate and free in turns; return the highest requested and active bytes."""
    live: list[int] = []
    highest = levels(allocator, "requested"), levels(allocator, "active")
    for size, place in zip(sizes, frees, strict=False):
        live.append(allocator.malloc(size))
        highest = max(highest[0], levels(allocator, "requested")), max(highest[1], levels(allocator, "active"))
        if place < len(live):
            allocator.free(live.pop(place))
    return highest


@given(
    sizes=st.lists(any_sizes, min_size=1, max_size=40),
    frees=st.lists(st.integers(0, 12), min_size=40, max_size=40),
    conf=st.sampled_from(["", EXPANDABLE, ROUNDING, f"{EXPANDABLE},{ROUNDING}", "max_split_size_mb:21"]),
)
def test_a_whole_trace_gives_the_true_peaks(sizes: list[int], frees: list[int], conf: str) -> None:
    # GIVEN
    allocator = Allocator(4 * GIB, settings=parse_alloc_conf(conf))
    requested, active = run(allocator, sizes, frees)

    # WHEN
    found, _ = figures(allocator.snapshot())

    # THEN
    assert (found["peak_requested_bytes"], found["peak_active_bytes"]) == (requested, active)


@given(
    sizes=st.lists(small_sizes, min_size=20, max_size=40), frees=st.lists(st.integers(0, 12), min_size=40, max_size=40)
)
def test_a_trace_that_begins_in_mid_run_is_walked_back_from_the_end(sizes: list[int], frees: list[int]) -> None:
    # GIVEN blocks that are live when the ring of the trace begins
    allocator = Allocator(4 * GIB, trace_max_entries=10_000)
    run(allocator, sizes[:10], [99] * 10)
    before = allocator.snapshot()["device_traces"][0]
    requested, active = run(allocator, sizes[10:], frees)

    # WHEN the trace has lost what came before
    content = allocator.snapshot()
    del content["device_traces"][0][: len(before)]
    found, missing = figures(content)

    # THEN
    assert (found["peak_requested_bytes"], found["peak_active_bytes"]) == (requested, active)
    assert any("mid-run" in line for line in missing)


def blocks(*sizes: int) -> dict[str, Any]:
    return segment(*((size, "live") for size in sizes), small=True)


@pytest.mark.parametrize(
    "trace",
    [
        [event("alloc", 0, 5)],
        [event("alloc", 0, KIB - 100), event("alloc", 0, KIB - 100)],
        [event("free_completed", 512, 9), event("free_completed", 512, 9)],
        [event("alloc", 512, 9), event("free_completed", 512, 8)],
        [event("alloc", 4096, 9)],
        [event("alloc", 0, KIB - 100), event("free_completed", 0, KIB - 100)],
    ],
    ids=[
        "another size",
        "allocated twice",
        "freed twice",
        "freed with another size",
        "not there",
        "there though freed",
    ],
)
def test_a_trace_that_cannot_have_led_to_the_final_state_gives_no_peak(trace: list[dict[str, Any]]) -> None:
    found, missing = figures(tree(blocks(KIB, KIB), traces=[trace]))
    assert found["peak_requested_bytes"] is found["peak_active_bytes"] is None
    assert any("do not fit the final state" in line for line in missing)


def test_a_job_that_gave_everything_back_had_a_peak() -> None:
    # GIVEN a trace at whose end nothing is left
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(3 * MIB))
    allocator.empty_cache()
    found, missing = figures(allocator.snapshot())

    # THEN the block of 3 MiB, of a segment of 20 that was split
    assert (found["reserved_bytes"], found["blocks"]) == (0, 0)
    assert (found["peak_requested_bytes"], found["peak_active_bytes"]) == (3 * MIB, 3 * MIB)
    assert missing == []


def test_pending_frees_count_until_they_are_complete() -> None:
    trace = [event("alloc", 0, KIB - 100), event("alloc", KIB, KIB - 100), event("free_requested", KIB, KIB - 100)]
    found, _ = figures(
        tree(segment((KIB, "live"), (KIB, "pending"), (2 * MIB - 2 * KIB, "free"), small=True), traces=[trace])
    )
    assert (found["peak_requested_bytes"], found["peak_active_bytes"]) == (2 * KIB - 200, 2 * KIB)
    assert (found["allocated_bytes"], found["active_bytes"]) == (KIB, 2 * KIB)


def test_where_the_settings_are_not_recorded_the_defaults_are_assumed_and_it_is_said() -> None:
    # GIVEN a block that is gone, in a file without settings
    trace = [event("alloc", 0, KIB - 100), event("alloc", KIB, 600), event("free_completed", KIB, 600)]
    made = segment((KIB, "live"), (2 * MIB - KIB, "free"), small=True)
    found, missing = figures(tree(made, traces=[trace], allocator_settings={}))

    # THEN
    assert (found["peak_requested_bytes"], found["peak_active_bytes"]) == (KIB - 100 + 600, 2 * KIB)
    assert any("assume the defaults" in line for line in missing)


@pytest.mark.parametrize(("others", "peak"), [((), None), ((event("alloc", 4 * KIB, 600),), KIB)])
def test_a_private_pool_may_have_been_made_not_to_split(others: tuple[dict[str, Any], ...], peak: int | None) -> None:
    # GIVEN a block of a private pool that began where its segment did, and is gone
    trace = [event("alloc", 0, 600), event("free_completed", 0, 600)]

    # WHEN there is a sign that the pool splits, a block in the middle of a segment, or none
    ends = [{**other, "action": "free_completed"} for other in others]
    found, missing = figures(
        tree(segment((2 * MIB, "free"), small=True, pool=(0, 1)), traces=[[*trace, *others, *ends]])
    )

    # THEN
    assert found["peak_requested_bytes"] == 600
    assert found["peak_active_bytes"] == peak
    assert any("no peak of active bytes" in line for line in missing) == (peak is None)


def test_a_live_block_that_is_not_its_request_rounded_up_says_that_the_rule_does_not_hold() -> None:
    trace = [event("alloc", 0, KIB - 100), event("alloc", 8 * KIB, 600), event("free_completed", 8 * KIB, 600)]
    found, _ = figures(tree(segment((4 * KIB, "live"), (MIB, "free"), small=True), traces=[trace]))
    assert found["peak_active_bytes"] is None


def test_an_out_of_memory_is_listed_with_its_moment_and_stack() -> None:
    stack = [{"filename": "train.py", "line": 7, "name": "forward"}]
    found, _ = figures(tree(blocks(KIB), traces=[[event("alloc", 0, KIB - 100), oom(5 * GIB, 3 * GIB, frames=stack)]]))
    assert found["oom"] == [
        {
            "event": 1,
            "time_us": 1_000_000,
            "rounded_request_bytes": 5 * GIB,
            "device_free_bytes": 3 * GIB,
            "stream": 0,
            "frames": [["train.py", 7, "forward"]],
        }
    ]


def test_totals_that_are_not_the_sums_of_their_blocks_are_told() -> None:
    made = blocks(KIB)
    made["allocated_size"] += 512
    found, missing = figures(tree(made))
    assert found["inactive_split_bytes"] is found["peak_requested_bytes"] is None
    assert any("allocated_size are not the sums of their blocks" in line for line in missing)


def test_what_a_release_did_not_record_is_missing_and_not_0() -> None:
    # GIVEN a list from before there were requested sizes and times
    made = blocks(KIB)
    del made["requested_size"], made["blocks"][0]["requested_size"]
    entry = event("alloc", 0, KIB - 100)
    del entry["time_us"]
    found, missing = figures({"segments": [made], "device_traces": [[entry]]})

    # THEN
    assert found["requested_bytes"] is found["peak_requested_bytes"] is None
    assert found["allocated_bytes"] == KIB
    assert "device 0: requested bytes are not recorded, so there are no peaks" in missing
    assert "device 0: the events have no times" in missing
    assert "the allocator's settings are not recorded" in missing
