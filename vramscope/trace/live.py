"""What is alive after an event, without working out the whole segment map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vramscope.columns import INACTIVE, U64
from vramscope.errors import BadInputError
from vramscope.snapshot.columns import I32, I64
from vramscope.trace.columns import DeviceTrace


class Alive(NamedTuple):
    """L live blocks, pending frees included: address, block bytes and stack; ``allocation`` is -1 where there are no lifetimes."""

    allocation: I64
    address: U64
    size_bytes: I64
    stack: I32


def alive_at(trace: DeviceTrace, event: int) -> Alive:
    """Return what lives after ``event``, from BEFORE to the last; the end is always known. Raises BadInputError for another."""
    if trace.contradiction is not None:
        if event != trace.event_count - 1:
            raise BadInputError(f"only the end of this trace is known: {trace.contradiction}")
        live = trace.final.block_state != INACTIVE
        address, size = trace.final.block_address[live], trace.final.block_bytes[live]
        return Alive(np.full(len(address), -1), address, size.astype(np.int64), trace.final_block_stack[live])
    own = trace.allocations
    alive = np.flatnonzero((own.first_event <= event) & (own.last_event > event))
    return Alive(alive, own.address[alive], own.block_bytes[alive].astype(np.int64), own.stack[alive])
