"""What is known of one allocation or one block: where, how large, since when, whose by its stack, and what lies beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from vramscope.agent.vocabulary import STATES
from vramscope.columns import INACTIVE
from vramscope.snapshot.columns import NONE
from vramscope.trace.columns import BEFORE, Moment
from vramscope.trace.described import Described, segment_pool
from vramscope.trace.tables import allocation_row
from vramscope.units import format_address


def block_at(moment: Moment, address: int) -> int | None:
    """Return the block around an address, None where no segment is."""
    state = moment.state
    block = int(np.searchsorted(state.block_address, np.uint64(address), side="right")) - 1
    if block < 0 or address >= int(state.block_address[block]) + int(state.block_bytes[block]):
        return None
    return block


def block_facts(described: Described, moment: Moment, block: int) -> dict[str, Any]:
    """Return what is known of a block of ``moment``, live or free."""
    state = moment.state
    place = _place(moment, block)
    if state.block_state[block] == INACTIVE:
        return {
            "free": True,
            "address": format_address(int(state.block_address[block])),
            "bytes": int(state.block_bytes[block]),
            "uncertain": bool(moment.uncertain_block[block]),
            **place,
        }
    allocation = int(moment.block_allocation[block])
    if allocation >= 0:
        return _allocation(described, allocation, moment.event) | place
    requested = None if described.trace.requested_bytes is None else int(state.block_requested_bytes[block])
    return {
        "allocation": None,
        "address": format_address(int(state.block_address[block])),
        "bytes": int(state.block_bytes[block]),
        "requested_bytes": requested,
        "is_exact": True,
        "first_event": None,
        "free_event": None,
        "last_event": None,
        "first_time_us": None,
        "last_time_us": None,
        "lifetime_us": None,
        "lifetime_events": None,
        "lifetime": "not known: this file's trace does not tell lifetimes",
        "event": moment.event,
        **_owner(described, int(moment.block_stack[block])),
        **place,
    }


def allocation_facts(described: Described, allocation: int, event: int, moment: Moment | None) -> dict[str, Any]:
    """Return what is known of an allocation, with its neighbours in ``moment`` if it is there then (None: not told)."""
    found = _allocation(described, allocation, event)
    block = () if moment is None else np.flatnonzero(moment.block_allocation == allocation).tolist()
    if moment is not None and block:
        return found | _place(moment, block[0])
    return found | {"segment": None, "pool": None, "before": None, "behind": None}


def _allocation(described: Described, allocation: int, event: int) -> dict[str, Any]:
    own, count = described.trace.allocations, described.trace.event_count
    first, free, last = (int(column[allocation]) for column in (own.first_event, own.free_event, own.last_event))
    return {
        **allocation_row(described, allocation),
        "free_event": None if free == count else free,
        "first_time_us": described.time_us(first),
        "last_time_us": described.time_us(last),
        "lifetime": _lifetime(first, free, last, count),
        "event": event,
        **_owner(described, int(own.stack[allocation])),
    }


def _lifetime(first: int, free: int, last: int, count: int) -> str:
    begin = "there before the trace" if first == BEFORE else f"from event {first}"
    if last < count:
        return f"{begin}, gone at event {last}"
    return f"{begin}, {'pending free' if free < count else 'still there'} at the end"


def _owner(described: Described, stack: int) -> dict[str, Any]:
    return {
        "category": described.category(stack),
        "rule": described.rules.why(stack),
        "site": described.site(stack),
        "stack": stack,
        "frames": [] if stack == NONE else [list(frame) for frame in described.snapshot.frames(stack)],
    }


def _place(moment: Moment, block: int) -> dict[str, Any]:
    state = moment.state
    segment = int(np.searchsorted(state.segment_first_block, block, side="right")) - 1
    first, end = (int(bound) for bound in state.segment_first_block[segment : segment + 2])
    return {
        "segment": format_address(int(state.segment_address[segment])),
        "stream": str(int(state.segment_stream[segment])),
        "pool": segment_pool(state, segment),
        "before": _neighbour(moment, block - 1) if block > first else None,
        "behind": _neighbour(moment, block + 1) if block + 1 < end else None,
    }


def _neighbour(moment: Moment, block: int) -> dict[str, Any]:
    state, allocation = moment.state, int(moment.block_allocation[block])
    return {
        "address": format_address(int(state.block_address[block])),
        "bytes": int(state.block_bytes[block]),
        "state": STATES[state.block_state[block]],
        "allocation": None if allocation < 0 else allocation,
    }
