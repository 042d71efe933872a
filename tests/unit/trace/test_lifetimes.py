"""Which event begins and ends each allocation, and what the trace leaves to the final state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, frame, tree
from tests.unit.trace.jobs import traced_device
from tests.unit.trace.views import described
from vramscope.snapshot.columns import NONE
from vramscope.trace.columns import BEFORE, Allocations
from vramscope.units import KIB, MIB

HERE, ELSEWHERE = [frame("forward")], [frame("collect")]


def allocations(trace: list[dict[str, Any]], *blocks: tuple[int, str]) -> Allocations:
    return traced_device(tree(segment(*blocks, small=True), traces=[trace])).allocations


def lifetimes(found: Allocations) -> list[tuple[int, int, int, int]]:
    """Return (offset, first, free, last) of each allocation."""
    offsets = [address - BASE for address in found.address.tolist()]
    events = (found.first_event.tolist(), found.free_event.tolist(), found.last_event.tolist())
    return list(zip(offsets, *events, strict=True))


def test_allocations_of_one_address_follow_each_other() -> None:
    turns = ("alloc", "free_requested", "free_completed")
    found = allocations([event(action, KIB, 600) for action in (*turns, *turns)], (2 * MIB, "free"))
    assert lifetimes(found) == [(KIB, 0, 1, 2), (KIB, 3, 4, 5)]
    assert found.final_block.tolist() == [-1, -1]


def test_what_lives_at_the_end_is_the_block_there() -> None:
    # GIVEN blocks that the trace made, one of them pending, and one from before it
    found = allocations(
        [event("alloc", 0, KIB - 100), event("alloc", KIB, KIB - 100), event("free_requested", KIB, KIB - 100)],
        (KIB, "live"),
        (KIB, "pending"),
        (KIB, "live"),
        (KIB, "pending"),
    )
    assert lifetimes(found) == [(0, 0, 3, 3), (KIB, 1, 2, 3), (2 * KIB, BEFORE, 3, 3), (3 * KIB, BEFORE, BEFORE, 3)]
    assert found.final_block.tolist() == [0, 1, 2, 3]


def test_what_the_trace_only_frees_was_there_before_it() -> None:
    trace = [event("free_requested", 0, 9), event("free_completed", KIB, 9), event("free_completed", 0, 9)]
    found = allocations(trace, (2 * MIB, "free"))
    assert lifetimes(found) == [(0, BEFORE, 0, 2), (KIB, BEFORE, BEFORE, 1)]


def test_a_free_that_only_completes_in_the_trace_was_pending_when_it_began() -> None:
    found = allocations([event("free_completed", 0, 9)], (2 * MIB, "free"))
    assert lifetimes(found) == [(0, BEFORE, BEFORE, 0)]


def test_a_trace_without_requests_of_frees_has_none_pending() -> None:
    # GIVEN a trace that was recorded without them (skip_actions)
    trace = [event("free_completed", KIB, 9), event("alloc", 0, 9), event("free_completed", 0, 9)]
    found = allocations(trace, (2 * MIB, "free"))
    assert lifetimes(found) == [(0, 1, 2, 2), (KIB, BEFORE, 0, 0)]


@pytest.mark.parametrize(("of_free", "known"), [(HERE, True), (ELSEWHERE, False)])
def test_a_free_tells_the_stack_of_an_allocation_before_the_trace_only_where_it_is_that(
    of_free: list[dict[str, Any]], known: bool
) -> None:
    # GIVEN a pair that shows whose stack a free has: the allocation's, or that of whoever frees
    trace = [
        event("alloc", 0, 9, frames=HERE),
        event("free_requested", 0, 9, frames=of_free),
        event("free_completed", 0, 9, frames=of_free),
        event("free_requested", KIB, 9, frames=HERE),
        event("free_completed", KIB, 9, frames=HERE),
    ]
    found = allocations(trace, (2 * MIB, "free"))
    assert (found.stack[1] != NONE) == known


@pytest.mark.parametrize(
    "trace",
    [
        [event("free_requested", 0, KIB - 100)],
        [event("alloc", 0, KIB - 100), event("free_requested", 0, KIB - 100), event("alloc", 0, KIB - 100)],
        [event("alloc", 0, KIB - 100), event("free_requested", 0, 7), event("free_completed", 0, 7)],
    ],
    ids=["requested though live", "allocated while pending", "another size"],
)
def test_turns_that_cannot_be_are_a_contradiction(trace: list[dict[str, Any]]) -> None:
    found = traced_device(tree(segment((KIB, "live"), small=True), traces=[trace]))
    assert found.contradiction is not None
    assert "do not fit the final state" in found.contradiction


def test_the_final_state_tells_the_stack_of_a_block_of_which_the_trace_has_only_the_free() -> None:
    # GIVEN a block that waits for its free, whose request has the stack of whoever frees
    made = segment((KIB, "pending"), (2 * MIB - KIB, "free"), small=True)
    made["blocks"][0]["frames"] = HERE
    asked = event("free_requested", 0, KIB - 100, frames=ELSEWHERE)
    found = described(tree(made, traces=[[asked]]))

    # THEN
    (stack,) = found.trace.allocations.stack.tolist()
    assert found.snapshot.frames(stack) == [("train.py", 1, "forward")]


def test_without_a_pair_nobody_knows_whose_stack_a_free_has() -> None:
    found = allocations([event("free_completed", 0, 9, frames=HERE)], (2 * MIB, "free"))
    assert found.stack.tolist() == [NONE]
