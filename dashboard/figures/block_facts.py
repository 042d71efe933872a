"""What is known of one block: where it lies, what it is and who owns it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vramscope.agent.categories import CATEGORIES
from vramscope.columns import INACTIVE, STATES, DeviceMap
from vramscope.owners import NO_OWNER, BlockOwners
from vramscope.units import format_address, format_bytes, format_ratio

STATE_TEXTS = {
    "active_allocated": "active",
    "active_pending_free": "pending free (another stream still uses it)",
    "inactive": "inactive (cached and free)",
}


@dataclass(frozen=True)
class BlockFacts:
    """One block; ``owner``, ``name``, ``shape``, ``dtype`` and ``rule`` are None where nothing owns or names it."""

    address: int
    size_bytes: int
    requested_bytes: int | None
    state: str
    stream: int
    pool: str
    segment: str
    owner: str | None
    name: str | None
    shape: str | None
    dtype: str | None
    rule: str | None


def find(found: DeviceMap, owners: BlockOwners, address: int) -> BlockFacts | None:
    """Return the facts of the block that contains ``address``, or None where no block does."""
    # A uint64 array would turn into floats when searched for a Python int that does not fit.
    if not 0 <= address < 1 << 64:
        return None
    block = int(np.searchsorted(found.block_address, np.uint64(address), side="right")) - 1
    if block < 0 or address >= int(found.block_address[block]) + int(found.block_bytes[block]):
        return None
    segment = int(np.searchsorted(found.segment_first_block, block, side="right")) - 1
    tensor = int(owners.tensor[block])
    name, shape, dtype = found.tensor_labels[tensor] if tensor >= 0 else (None, None, None)
    code = int(owners.category[block])
    active = int(found.block_state[block]) != INACTIVE
    return BlockFacts(
        address=int(found.block_address[block]),
        size_bytes=int(found.block_bytes[block]),
        # PyTorch leaves the last request's size on a free block, where it means nothing.
        requested_bytes=int(found.block_requested_bytes[block]) if active else None,
        state=STATE_TEXTS[STATES[int(found.block_state[block])]],
        stream=int(found.segment_stream[segment]),
        pool=_pool(found, segment),
        segment=_segment(found, segment),
        owner=None if code == NO_OWNER else CATEGORIES[code],
        name=name,
        shape=shape,
        dtype=dtype,
        rule=owners.rule(block),
    )


def _pool(found: DeviceMap, segment: int) -> str:
    size = "small pool" if found.segment_is_small[segment] else "large pool"
    private = (int(found.segment_pool_a[segment]), int(found.segment_pool_b[segment]))
    return f"{size}, private {private}" if private != (0, 0) else size


def _segment(found: DeviceMap, segment: int) -> str:
    own = slice(int(found.segment_first_block[segment]), int(found.segment_first_block[segment + 1]))
    total = int(found.segment_total_bytes[segment])
    active = int(found.block_bytes[own][found.block_state[own] != INACTIVE].sum())
    kind = "mapped range of an expandable segment" if found.segment_is_expandable[segment] else "segment"
    place = format_address(int(found.segment_address[segment]))
    return f"{kind} of {format_bytes(total)} at {place}, {format_ratio(active / total)} active"


def rows(facts: BlockFacts) -> list[tuple[str, str]]:
    """Return the facts as (label, text), in the order of the page."""
    size = f"{format_bytes(facts.size_bytes)} ({facts.size_bytes:,} B)"
    found = [("Address", format_address(facts.address)), ("Size", size)]
    if facts.requested_bytes is not None:
        rounding = facts.size_bytes - facts.requested_bytes
        found.append(("Requested", f"{format_bytes(facts.requested_bytes)} + {format_bytes(rounding)} rounding"))
    found.append(("State", f"{facts.state} · stream {facts.stream} · {facts.pool}"))
    found.append(("Segment", facts.segment))
    if facts.owner is not None:
        found.append(("Owner", facts.owner))
    if facts.name:
        found.append(("Tensor", f"{facts.name} {facts.shape} {facts.dtype}"))
    if facts.rule is not None:
        found.append(("Because", facts.rule))
    return found
