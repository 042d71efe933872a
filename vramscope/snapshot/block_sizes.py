"""How large the block of each allocation was: an event tells its request, and a block is often larger."""

from __future__ import annotations

import numpy as np

from vramscope.allocator.rounding import DIVISION_BUCKETS, MIN_BLOCK_BYTES, SMALL_LIMIT_BYTES, round_size
from vramscope.columns import INACTIVE, U64
from vramscope.snapshot.changes import ALLOC, FREE, Bools, Changes
from vramscope.snapshot.columns import ACTION_CODE, DeviceSnapshot, Settings

SEGMENT_ALLOC, SEGMENT_FREE = ACTION_CODE["segment_alloc"], ACTION_CODE["segment_free"]
SEGMENT_MAP = ACTION_CODE["segment_map"]


def block_bytes(found: DeviceSnapshot, changed: Changes, settings: Settings) -> U64 | None:
    """Return the block bytes of each change (C,), or None where they do not follow from what the file says.

    Private pools may have rules of their own, and a file that does not record the allocator's settings has no rounding.
    """
    divisions = _divisions(settings)
    if divisions is None or _has_private_pools(found):
        return None
    rounded = _rounded(changed.requested_bytes, divisions)
    by_rule = _by_rounding(found, changed, rounded, divisions, settings)
    return by_rule if by_rule is not None else _by_following(found, changed, rounded, settings)


def _by_rounding(
    found: DeviceSnapshot, changed: Changes, rounded: U64, divisions: list[int], settings: Settings
) -> U64 | None:
    """Return the sizes where each is certain: that of a block that is still there, or its request rounded up.

    It is rounded up and no more where a larger free block was split for it: always in the small pool and with expandable
    segments. The blocks of the final state are the witnesses that the rule holds here.
    """
    is_known = changed.final_block >= 0
    state, active = found.state, found.state.block_state != INACTIVE
    witnesses = _rounded(state.block_requested_bytes[active], divisions)
    if np.any(_is_split(found, witnesses, settings) & (witnesses != state.block_bytes[active])):
        return None
    if not np.all(is_known | _is_split(found, rounded, settings)):
        return None
    sizes = rounded.copy()
    sizes[is_known] = state.block_bytes[changed.final_block[is_known]]
    return sizes


def _by_following(found: DeviceSnapshot, changed: Changes, rounded: U64, settings: Settings) -> U64 | None:
    """Return the sizes by following every event from an empty device; None where that does not end at the final state.

    An event has its address, so the free block that it took is known without asking how it was chosen.
    """
    max_split = settings.get("max_split_size")
    events = found.events
    if changed.starts_mid_run or type(max_split) is not int:
        return None
    if settings.get("expandable_segments") is not False or np.any(events.action == SEGMENT_MAP):
        return None
    sizes = events.size_bytes.copy()
    sizes[changed.event] = rounded
    space = _Space(max_split if max_split >= 0 else None)
    is_followed = np.isin(events.action, (ALLOC, FREE, SEGMENT_ALLOC, SEGMENT_FREE))
    columns = (column[is_followed].tolist() for column in (events.action, events.address, sizes))
    followed = []
    try:
        for action, address, size in zip(*columns, strict=True):
            if action == ALLOC:
                followed.append(space.allocate(address, size))
            elif action == FREE:
                followed.append(space.free(address))
            elif action == SEGMENT_ALLOC:
                space.add_segment(address, size)
            else:
                space.remove_segment(address, size)
    except KeyError:
        return None
    return np.array(followed, np.uint64) if space.is_state_of(found) else None


class _Space:
    """Segments and their blocks as the events leave them. Every method raises KeyError for what cannot be."""

    def __init__(self, max_split_bytes: int | None) -> None:
        self._max_split_bytes = max_split_bytes
        self._segments: dict[int, int] = {}
        self._live: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._free_by_end: dict[int, int] = {}

    def add_segment(self, address: int, size: int) -> None:
        self._segments[address] = size
        self._add_free(address, size)

    def remove_segment(self, address: int, size: int) -> None:
        if self._segments.pop(address) != size or self._take_free(address) != size:
            raise KeyError(address)

    def allocate(self, address: int, size: int) -> int:
        """Return the bytes of the block that a rounded request of ``size`` got; what is split off stays free behind it."""
        whole = self._take_free(address)
        rest = whole - size
        if rest < 0:
            raise KeyError(address)
        if self._is_split(size, rest):
            self._add_free(address + size, rest)
            whole = size
        self._live[address] = whole
        return whole

    def free(self, address: int) -> int:
        """Return the bytes of the block, which joins the free ones before and behind it in its segment."""
        size = whole = self._live.pop(address)
        behind = address + size
        if behind in self._free and behind not in self._segments:
            whole += self._take_free(behind)
        if address in self._free_by_end and address not in self._segments:
            before = self._free_by_end[address]
            whole += self._take_free(before)
            address = before
        self._add_free(address, whole)
        return size

    def is_state_of(self, found: DeviceSnapshot) -> bool:
        """Return whether these are the segments and blocks of the final state, to the byte."""
        state, active = found.state, found.state.block_state != INACTIVE
        segments = dict(zip(state.segment_address.tolist(), state.segment_total_bytes.tolist(), strict=True))
        address, size = state.block_address, state.block_bytes
        live = dict(zip(address[active].tolist(), size[active].tolist(), strict=True))
        free = dict(zip(address[~active].tolist(), size[~active].tolist(), strict=True))
        return (self._segments, self._live, self._free) == (segments, live, free)

    def _is_split(self, size: int, rest: int) -> bool:
        if size <= SMALL_LIMIT_BYTES:
            return rest >= MIN_BLOCK_BYTES
        return rest > SMALL_LIMIT_BYTES and (self._max_split_bytes is None or size < self._max_split_bytes)

    def _add_free(self, address: int, size: int) -> None:
        self._free[address] = size
        self._free_by_end[address + size] = address

    def _take_free(self, address: int) -> int:
        size = self._free.pop(address)
        del self._free_by_end[address + size]
        return size


def _is_split(found: DeviceSnapshot, rounded: U64, settings: Settings) -> Bools:
    """Return for each block whether the allocator has split it off to its rounded size for certain."""
    only_expandable = (
        settings.get("expandable_segments") is True
        and bool(np.all(found.state.segment_is_expandable))
        and not np.any(found.events.action == SEGMENT_ALLOC)
    )
    return (rounded <= SMALL_LIMIT_BYTES) | only_expandable


def _has_private_pools(found: DeviceSnapshot) -> bool:
    pools = [found.state.segment_pool_a, found.state.segment_pool_b, found.events.pool_a, found.events.pool_b]
    return any(pool is not None and bool(np.any(pool)) for pool in pools)


def _rounded(requested_bytes: U64, divisions: list[int]) -> U64:
    different, place = np.unique(requested_bytes, return_inverse=True)
    return np.array([round_size(size, divisions) for size in different.tolist()], np.uint64)[place]


def _divisions(settings: Settings) -> list[int] | None:
    """Return the 16 of ``roundup_power2_divisions``, None where the file does not record them."""
    recorded = settings.get("roundup_power2_divisions")
    if not isinstance(recorded, dict):
        return None
    values = [recorded.get(str(1 << bucket)) for bucket in range(DIVISION_BUCKETS)]
    return [value for value in values if type(value) is int and value >= 0] if None not in values else None
