"""The state at any moment is that which the allocator had then, whatever its settings and wherever the ring begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.allocator_traces import CAPACITY_BYTES, Operation, random_program
from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, tree
from tests.unit.trace.comparison import assert_moment
from tests.unit.trace.jobs import Job, job, traced_device
from vramscope.allocator import parse_alloc_conf
from vramscope.columns import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE
from vramscope.errors import BadInputError
from vramscope.trace.columns import BEFORE, DeviceTrace, Peak
from vramscope.trace.moment import moment_at
from vramscope.units import KIB, MIB

CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:128,expandable_segments:True",
    "roundup_power2_divisions:[1:4,16:2,>:8]",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "large_segment_size_mb:26,max_split_size_mb:100,max_non_split_rounding_mb:80",
)

Options = tuple[dict[str, bool], ...]
POOL_OPTIONS: tuple[Options, ...] = ((), ({}, {}), ({"no_split": True}, {"use_on_oom": True}))


def cut(program: list[Operation], operations: int) -> list[Operation]:
    """Return the first ``operations`` of a program, with its pools closed."""
    program = program[:operations]
    opened = sum(action == "begin_pool" for action, *_ in program) - sum(action == "end_pool" for action, *_ in program)
    return [*program, *([["end_pool"]] * opened)]


def assert_every_state(made: Job, trace: DeviceTrace, *, most_uncertain_bytes: int) -> None:
    dropped = len(made.events) - trace.event_count
    for events, state in made.states.items():
        if events - dropped - 1 >= BEFORE:
            assert_moment(trace, events - dropped - 1, state, most_uncertain_bytes=most_uncertain_bytes)


@given(
    seed=st.integers(0, 1 << 32),
    operations=st.integers(1, 250),
    conf=st.sampled_from(CONFS),
    pools=st.sampled_from(POOL_OPTIONS),
    share=st.floats(0, 1),
)
def test_every_moment_is_the_allocators_own_state(
    seed: int, operations: int, conf: str, pools: Options, share: float
) -> None:
    # GIVEN a job with streams, pending frees, out-of-memories and empty_cache, and a ring that kept its last events
    made = job(cut(random_program(seed, 250, pools=len(pools)), operations), parse_alloc_conf(conf), pools=pools)
    kept = int(len(made.events) * share)

    # WHEN
    trace = traced_device(made.kept(kept))

    # THEN
    assert trace.contradiction is None
    # AND a block whose end is not certain keeps at most a small rest, unless nothing is split off large ones
    assert_every_state(made, trace, most_uncertain_bytes=CAPACITY_BYTES if "max_split" in conf or any(pools) else MIB)


@given(seed=st.integers(0, 1 << 32), operations=st.integers(1, 250), conf=st.sampled_from(CONFS))
def test_with_the_whole_trace_every_block_is_certain(seed: int, operations: int, conf: str) -> None:
    # GIVEN a trace from the job's first event on, whose settings do not leave open what was done with small rests
    made = job(cut(random_program(seed, 250), operations), parse_alloc_conf(conf))

    # WHEN
    trace = traced_device(made.kept(None))

    # THEN its peaks are the allocator's own
    assert trace.active_is_exact
    stats = made.stats[len(made.events)]
    for name, peak in (("active", trace.peak_active), ("requested", trace.peak_requested)):
        assert (0 if peak is None else peak.peak_bytes) == stats[f"{name}_bytes"]["all"]["peak"]
    assert_every_state(made, trace, most_uncertain_bytes=0)


def states(trace: DeviceTrace, at: int) -> list[tuple[int, int, int]]:
    """Return (offset, bytes, state) of each block after an event."""
    found = moment_at(trace, at).state
    offsets = (found.block_address - np.uint64(BASE)).tolist()
    return list(zip(offsets, found.block_bytes.tolist(), found.block_state.tolist(), strict=True))


def test_a_pending_free_is_one_from_its_request_until_it_completes() -> None:
    trace = traced_device(
        tree(
            segment((2 * MIB, "free"), small=True),
            traces=[[event("alloc", 0, 900), event("free_requested", 0, 900), event("free_completed", 0, 900)]],
        )
    )
    rest = (KIB, 2 * MIB - KIB, INACTIVE)
    assert states(trace, BEFORE) == [(0, 2 * MIB, INACTIVE)]
    assert states(trace, 0) == [(0, KIB, ACTIVE_ALLOCATED), rest]
    assert states(trace, 1) == [(0, KIB, ACTIVE_PENDING_FREE), rest]
    assert states(trace, 2) == [(0, 2 * MIB, INACTIVE)]


def test_an_uncertain_block_and_the_free_one_behind_it_are_flagged() -> None:
    # GIVEN a block of the large pool from before the trace, whose size nobody knows
    trace = traced_device(
        tree(
            segment((18 * MIB, "free"), (2 * MIB, "live")),
            traces=[[event("free_requested", 0, 3 * MIB), event("free_completed", 0, 3 * MIB)]],
        )
    )
    moment = moment_at(trace, BEFORE)
    assert moment.state.block_bytes.tolist() == [3 * MIB, 15 * MIB, 2 * MIB]
    assert moment.uncertain_block.tolist() == [True, True, False]
    assert not np.any(moment_at(trace, 1).uncertain_block)
    assert (trace.active_is_exact, trace.peak_active) == (False, None)
    assert any("1 blocks that are gone are not certain" in line for line in trace.notes)


def test_a_free_block_is_not_flagged_for_a_block_of_the_segment_before_it() -> None:
    # GIVEN a block that fills its segment, of a private pool that may not split, and another segment with nothing in it
    freed = [event(action, 0, 20 * MIB, pool_id=(0, 1)) for action in ("free_requested", "free_completed")]
    private = segment((20 * MIB, "free"), expandable=True, pool=(0, 1))
    trace = traced_device(tree(private, segment((2 * MIB, "free"), at=40 * MIB, small=True), traces=[freed]))
    moment = moment_at(trace, BEFORE)
    assert moment.state.block_bytes.tolist() == [20 * MIB, 2 * MIB]
    assert moment.uncertain_block.tolist() == [True, False]


@pytest.mark.parametrize("at", [-2, 2])
def test_a_moment_that_is_not_in_the_trace_is_one_line(at: int) -> None:
    trace = traced_device(tree(segment((KIB, "live"), small=True), traces=[[event("snapshot"), event("snapshot")]]))
    with pytest.raises(BadInputError, match=f"no event {at}"):
        moment_at(trace, at)


def test_without_events_there_is_the_final_state_alone() -> None:
    trace = traced_device(tree(segment((KIB, "live"), (2 * MIB - KIB, "free"), small=True)))
    assert states(trace, BEFORE) == [(0, KIB, ACTIVE_ALLOCATED), (KIB, 2 * MIB - KIB, INACTIVE)]
    assert moment_at(trace, BEFORE).block_allocation.tolist() == [0, -1]
    assert trace.active_bytes is not None
    assert trace.active_bytes.tolist() == [KIB]


def test_of_a_trace_that_does_not_fit_only_the_final_state_can_be_shown() -> None:
    # GIVEN a block that the trace freed and that is there
    trace = traced_device(
        tree(
            segment((KIB, "live"), small=True),
            traces=[[event("alloc", 0, KIB - 100), event("free_completed", 0, KIB - 100)]],
        )
    )
    assert trace.contradiction == "1 events of the trace do not fit the final state"
    assert (len(trace.allocations), trace.active_bytes, trace.requested_bytes) == (0, None, None)
    assert moment_at(trace, 1).state is trace.final
    with pytest.raises(BadInputError, match="only the end of the trace"):
        moment_at(trace, 0)


def test_segment_events_that_do_not_fit_leave_the_blocks_known() -> None:
    # GIVEN a segment that the trace freed and that is there
    trace = traced_device(
        tree(
            segment((2 * MIB, "free"), small=True),
            traces=[[event("alloc", 0, 9), event("free_completed", 0, 9), event("segment_free", 0, 2 * MIB)]],
        )
    )
    assert trace.contradiction is None
    assert trace.reserved_bytes is None
    assert trace.peak_requested == Peak(9, 0)
    assert any("segments are only known at the end" in line for line in trace.notes)
    assert moment_at(trace, 2).state is trace.final
    with pytest.raises(BadInputError, match="segment events do not fit"):
        moment_at(trace, 1)


def test_blocks_that_lie_in_each_other_at_some_moment_are_never_drawn() -> None:
    # GIVEN a history that was off for a while: what was freed meanwhile lies where a block of the end does
    trace = traced_device(
        tree(
            segment((4 * KIB, "live"), (2 * MIB - 4 * KIB, "free"), small=True),
            traces=[[event("alloc", 1024, 600), event("free_completed", 1024, 600)]],
        )
    )
    assert len(moment_at(trace, 1).state.block_bytes) == 2
    with pytest.raises(BadInputError, match="contradict each other after event 0"):
        moment_at(trace, 0)
