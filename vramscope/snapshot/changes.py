"""What a trace changes, compared with the final state: only where the two agree event by event can one be walked to the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramscope.columns import INACTIVE, U64
from vramscope.snapshot.columns import ACTION_CODE, I64, DeviceSnapshot

ALLOC, FREE = ACTION_CODE["alloc"], ACTION_CODE["free_completed"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Changes:
    """The events that change how much is active: allocations, and frees that are complete. Columns have shape (C,).

    ``event`` are their positions in the trace. ``final_block`` is the position of the block in the final state that an
    allocation became, -1 where it was freed again and for frees. ``starts_mid_run`` says that blocks were live
    before the first event; ``contradiction`` in one line why this trace cannot have led to the final state.
    """

    event: I64
    is_alloc: Bools
    requested_bytes: U64
    final_block: I64
    starts_mid_run: bool
    contradiction: str | None


def changes_of(found: DeviceSnapshot) -> Changes:
    """Return the changes of one device, in the order of its trace."""
    events, state = found.events, found.state
    event = np.flatnonzero((events.action == ALLOC) | (events.action == FREE))
    order = np.argsort(events.address[event], kind="stable")
    address, requested = events.address[event][order], events.size_bytes[event][order]
    is_alloc = events.action[event][order] == ALLOC

    # Of one address, allocations and frees take turns, and each frees what was allocated.
    same = address[1:] == address[:-1]
    wrong_turn = same & (is_alloc[1:] == is_alloc[:-1])
    wrong_size = same & is_alloc[:-1] & ~is_alloc[1:] & (requested[1:] != requested[:-1])

    # The last of an address is an allocation where the final state has a block, and a free where it has none.
    is_last = np.ones(len(event), np.bool_)
    is_last[:-1] = ~same
    block, matches = _active_blocks(found, address)
    became = is_last & is_alloc & matches
    wrong_end = is_last & (matches != is_alloc)
    wrong_end[became] = state.block_requested_bytes[block[became]] != requested[became]

    is_first = np.ones(len(event), np.bool_)
    is_first[1:] = ~same
    live = int(np.count_nonzero(state.block_state != INACTIVE))
    wrong = sum(int(np.count_nonzero(mask)) for mask in (wrong_turn, wrong_size, wrong_end))
    final_block = np.full(len(event), -1, np.int64)
    final_block[order] = np.where(became, block, -1)
    return Changes(
        event=event,
        is_alloc=events.action[event] == ALLOC,
        requested_bytes=events.size_bytes[event],
        final_block=final_block,
        starts_mid_run=bool(np.any(is_first & ~is_alloc) or live > np.count_nonzero(became)),
        contradiction=f"{wrong} events of the trace do not fit the final state" if wrong else None,
    )


def _active_blocks(found: DeviceSnapshot, address: U64) -> tuple[I64, Bools]:
    """Return for each address the position of the active block that begins there, and whether there is one."""
    active = np.flatnonzero(found.state.block_state != INACTIVE)
    if not len(active):
        return np.zeros(len(address), np.int64), np.zeros(len(address), np.bool_)
    begins = found.state.block_address[active]
    place = np.minimum(np.searchsorted(begins, address), len(active) - 1)
    return active[place], begins[place] == address
