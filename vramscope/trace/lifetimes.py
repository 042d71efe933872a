"""When each block and segment began and ended: the events of one address take turns, and the last of them led to the final state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.columns import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE, U64
from vramscope.snapshot.columns import ACTION_CODE, I64, NONE, DeviceSnapshot, Events
from vramscope.trace.columns import BEFORE, Allocations, Bools

# The turns of an address: it begins, its free is requested, and it ends.
BEGIN, REQUEST, END = range(3)
# By the turn before and a turn: whether it may follow. Some traces leave the requests out.
_MAY_FOLLOW = np.zeros((3, 3), np.bool_)
_MAY_FOLLOW[BEGIN, [REQUEST, END]] = _MAY_FOLLOW[REQUEST, END] = _MAY_FOLLOW[END, BEGIN] = True

BLOCK_TURNS = {"alloc": BEGIN, "free_requested": REQUEST, "free_completed": END}
SEGMENT_TURNS = {"segment_alloc": BEGIN, "segment_free": END}


@dataclass(frozen=True, eq=False)
class Lives:
    """What begins and ends at an address; L lives in order of (address, time), E the number of events.

    ``first_event``, ``free_event`` and ``last_event`` are as of Allocations. ``told_by`` is the first event of a life, which
    has its stream and size. ``ends_address`` marks the last life of an address. ``wrong`` counts events that cannot be.
    """

    address: U64
    size_bytes: U64
    first_event: I64
    free_event: I64
    last_event: I64
    told_by: I64
    ends_address: Bools
    wrong: int

    def __len__(self) -> int:
        return len(self.address)


class Told(NamedTuple):
    """The allocations of a trace, with their requests as ``block_bytes`` so far, none of them exact.

    ``told_by`` (N,) is an event that tells of each, -1 where only the final state does. ``wrong`` counts events that cannot
    have led to the final state: where there are any, the lifetimes mean nothing.
    """

    allocations: Allocations
    told_by: I64
    wrong: int


def lives_of(events: Events, turns: dict[str, int]) -> Lives:
    """Return the lives that the events with the actions of ``turns`` tell of."""
    turn_of_action = np.full(256, -1, np.int8)
    for action, code in turns.items():
        turn_of_action[ACTION_CODE[action]] = code
    turn = turn_of_action[events.action]
    event = np.flatnonzero(turn >= 0)
    event = event[np.argsort(events.address[event], kind="stable")]
    turn, address, size = turn[event], events.address[event], events.size_bytes[event]

    same = np.zeros(len(event), np.bool_)
    same[1:] = address[1:] == address[:-1]
    later = np.flatnonzero(same)
    wrong = ~_MAY_FOLLOW[turn[later - 1], turn[later]]
    wrong |= (turn[later] != BEGIN) & (size[later] != size[later - 1])

    starts = np.flatnonzero(~same | (turn == BEGIN))
    ends = np.append(starts[1:], len(event))[: len(starts)] - 1
    begins, has_end = turn[starts] == BEGIN, turn[ends] == END
    request = np.where(has_end & (ends > starts), ends - 1, ends)
    never, last_event = len(events), np.where(has_end, event[ends], len(events))
    # A free that only completes in the trace was requested before it, unless a whole life in it shows that requests are left out.
    leaves_requests_out = bool(np.any(begins & has_end & (ends == starts + 1)))
    unasked = np.where(begins | leaves_requests_out, last_event, BEFORE)
    ends_address = np.ones(len(starts), np.bool_)
    ends_address[:-1] = address[starts[1:]] != address[starts[:-1]]
    return Lives(
        address=address[starts],
        size_bytes=size[starts],
        first_event=np.where(begins, event[starts], BEFORE),
        free_event=np.where(turn[request] == REQUEST, event[request], np.where(has_end, unasked, never)),
        last_event=last_event,
        told_by=event[starts],
        ends_address=ends_address,
        wrong=int(np.count_nonzero(wrong)),
    )


def place_of(addresses: U64, wanted: U64) -> I64:
    """Return the place of each of ``wanted`` in the sorted ``addresses``, -1 where it is not there."""
    if not len(addresses):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(addresses, wanted), len(addresses) - 1)
    return np.where(addresses[place] == wanted, place, -1)


def allocations_of(found: DeviceSnapshot) -> Told:
    """Return the allocations, as they follow from the events and the final state together."""
    events, state = found.events, found.state
    lives = lives_of(events, BLOCK_TURNS)
    active = np.flatnonzero(state.block_state != INACTIVE)
    place = place_of(state.block_address[active], lives.address)
    is_live = lives.last_event == len(events)
    wrong = lives.ends_address & (is_live != (place >= 0))
    known = np.flatnonzero(is_live & (place >= 0))
    block = active[place[known]]
    is_pending = lives.free_event[known] < len(events)
    wrong[known] |= state.block_requested_bytes[block] != lives.size_bytes[known]
    wrong[known] |= state.block_state[block] != np.where(is_pending, ACTIVE_PENDING_FREE, ACTIVE_ALLOCATED)
    final_block = np.full(len(lives), -1)
    final_block[known] = block
    # Blocks of which no event tells were there before the trace, and still are.
    rest = np.setdiff1d(active, block)
    return Told(
        *_joined(found, lives, final_block, rest),
        wrong=lives.wrong + int(np.count_nonzero(wrong)),
    )


def _joined(found: DeviceSnapshot, lives: Lives, final_block: I64, rest: I64) -> tuple[Allocations, I64]:
    """Return the lives and the blocks ``rest`` of the final state in order of their addresses, with the event that tells of each."""
    state, events, never = found.state, found.events, len(found.events)
    order = np.argsort(np.concatenate([lives.address, state.block_address[rest]]), kind="stable")
    before, pending = np.full(len(rest), BEFORE), state.block_state[rest] == ACTIVE_PENDING_FREE

    def joined(of_lives: npt.NDArray[Any], of_rest: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([of_lives, of_rest])[order]

    final_block = joined(final_block, rest)
    stack = joined(_stacks(lives, events), found.block_stack[rest])
    # The final state knows the stack of a block whose allocation is not in the trace.
    lost = np.flatnonzero((stack == NONE) & (final_block >= 0))
    stack[lost] = found.block_stack[final_block[lost]]
    requested_bytes = joined(lives.size_bytes, state.block_requested_bytes[rest])
    allocations = Allocations(
        address=joined(lives.address, state.block_address[rest]),
        requested_bytes=requested_bytes,
        block_bytes=requested_bytes,
        is_exact=np.zeros(len(order), np.bool_),
        first_event=joined(lives.first_event, before),
        free_event=joined(lives.free_event, np.where(pending, BEFORE, never)),
        last_event=joined(lives.last_event, np.full(len(rest), never)),
        stream=joined(events.stream[lives.told_by], state.segment_stream[state.block_segment()[rest]]),
        stack=stack,
        final_block=final_block,
    )
    return allocations, joined(lives.told_by, np.full(len(rest), -1))


def _stacks(lives: Lives, events: Events) -> npt.NDArray[np.int32]:
    """Return the stack of each allocation; a free has it too where PyTorch records stacks of allocations alone."""
    stack = events.stack[lives.told_by]
    from_before = lives.first_event == BEFORE
    asked = np.flatnonzero(~from_before & (lives.free_event < len(events)))
    if not len(asked) or not np.array_equal(stack[asked], events.stack[lives.free_event[asked]]):
        stack[from_before] = NONE
    return stack
