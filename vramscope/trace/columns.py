"""The trace of one device as frozen columns: every allocation and segment with its lifetime, and the levels after each event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramscope.columns import U8, U64, DeviceMap
from vramscope.snapshot.columns import I32, I64, Events, Snapshot

Bools = npt.NDArray[np.bool_]

# The event before the first one of a trace.
BEFORE = -1


@dataclass(frozen=True, eq=False)
class Allocations:
    """N allocations in order of (address, first_event); E is the number of events of the trace.

    An allocation is there after event ``i`` where ``first_event <= i < last_event``, and pending free where also
    ``free_event <= i``. ``first_event`` is BEFORE where it was made before the trace began; ``free_event``
    (free_requested) and ``last_event`` (free_completed) are E where that has not happened by the end. ``block_bytes`` is
    certain where ``is_exact``; elsewhere it is the rounded request, the least that it can be: a block of the
    large pool may keep up to 1 MiB more, and any rest where large blocks are not split.
    ``stack`` is that of the allocation, NONE where it was not recorded; ``final_block`` the position in the final state, or -1.
    """

    address: U64
    requested_bytes: U64
    block_bytes: U64
    is_exact: Bools
    first_event: I64
    free_event: I64
    last_event: I64
    stream: U64
    stack: I32
    final_block: I64

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, eq=False)
class SegmentSpans:
    """M segments, or mapped pieces of expandable ones, in order of (address, first_event); lifetimes as of Allocations."""

    address: U64
    total_bytes: U64
    first_event: I64
    last_event: I64
    stream: U64
    pool_a: U64
    pool_b: U64
    is_small: U8
    is_expandable: U8
    stack: I32

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True)
class Peak:
    """The highest level, and the event after which it was reached first (BEFORE: before the trace)."""

    peak_bytes: int
    event: int


@dataclass(frozen=True, eq=False)
class DeviceTrace:
    """Everything that is known of one device over its trace of E events.

    ``*_bytes`` levels have shape (E + 1,): ``[i + 1]`` is the level after event ``i``, ``[0]`` before the trace; None where
    they do not follow from the file. ``active_bytes`` counts blocks (pending frees included), ``requested_bytes`` requests,
    ``reserved_bytes`` segments. ``active_is_exact`` says that all block sizes are certain; else ``peak_active`` is None.
    ``contradiction`` (one line) says why the trace and the final state do not belong together: then there are no lifetimes
    (N = M = 0) and no levels, and only the final state can be shown. ``notes`` are lines about what is missing, cut or assumed.
    """

    device: int
    final: DeviceMap
    final_block_stack: I32
    final_segment_stack: I32
    events: Events
    allocations: Allocations
    segments: SegmentSpans
    active_bytes: I64 | None
    requested_bytes: I64 | None
    reserved_bytes: I64 | None
    active_is_exact: bool
    peak_active: Peak | None
    peak_requested: Peak | None
    starts_mid_run: bool
    contradiction: str | None
    notes: tuple[str, ...] = ()

    @property
    def event_count(self) -> int:
        return len(self.events)

    @property
    def tells_moments(self) -> bool:
        """Whether every moment follows from the file, and not only the final state."""
        return self.contradiction is None and self.reserved_bytes is not None

    @property
    def peak(self) -> Peak | None:
        """The peak of active bytes, or of requested bytes where only those follow; None where neither does."""
        return self.peak_active or self.peak_requested


@dataclass(frozen=True, eq=False)
class Moment:
    """The segments and blocks after one event; B blocks, S segments, as in ``state``.

    ``block_allocation`` (B,) is the position among the allocations, -1 for a free block. ``block_stack`` (B,) and ``segment_stack``
    (S,) are stacks. ``uncertain_block`` (B,) marks blocks whose end is not certain, and the free block behind each.
    """

    event: int
    state: DeviceMap
    block_allocation: I64
    block_stack: I32
    segment_stack: I32
    uncertain_block: Bools


@dataclass(frozen=True, eq=False)
class TracedSnapshot:
    """A snapshot with the trace of each of its devices, in the order of ``snapshot.devices``."""

    snapshot: Snapshot
    traces: tuple[DeviceTrace, ...]
