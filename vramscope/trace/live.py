"""What is alive after an event, without working out the whole segment map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vramscope.columns import INACTIVE, U64, check
from vramscope.errors import BadInputError, WireError
from vramscope.snapshot.columns import I32, I64
from vramscope.trace.columns import Bools, DeviceTrace


class Alive(NamedTuple):
    """L live blocks, pending frees included: address, block bytes and stack; ``allocation`` is -1 where there are no lifetimes."""

    allocation: I64
    address: U64
    size_bytes: I64
    stack: I32


def check_final(trace: DeviceTrace) -> None:
    """Raise BadInputError with one line where the final state contradicts itself: then nothing true can be made of its blocks."""
    try:
        check(trace.final)
    except WireError as error:
        line = str(error).replace("a map's", "the file's", 1)
        raise BadInputError(f"the memory of device {trace.device} cannot be shown: {line}") from None


def is_there(first_event: I64, last_event: I64, event: int) -> Bools:
    """Return which lifetimes, of allocations or of segments, hold the moment after ``event``."""
    found: Bools = (first_event <= event) & (last_event > event)
    return found


def alive_at(trace: DeviceTrace, event: int) -> Alive:
    """Return what lives after ``event``, from BEFORE to the last.

    Raises BadInputError where the trace tells the end only and another moment is asked for, or the file contradicts itself.
    """
    if trace.contradiction is not None:
        if event != trace.event_count - 1:
            raise BadInputError(f"only the end of this trace is known: {trace.contradiction}")
        check_final(trace)
        live = trace.final.block_state != INACTIVE
        address, size = trace.final.block_address[live], trace.final.block_bytes[live]
        return Alive(np.full(len(address), -1), address, size.astype(np.int64), trace.final_block_stack[live])
    own = trace.allocations
    alive = np.flatnonzero(is_there(own.first_event, own.last_event, event))
    return Alive(alive, own.address[alive], own.block_bytes[alive].astype(np.int64), own.stack[alive])
