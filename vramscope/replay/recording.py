"""What a replay starts from: the state before the trace, the operations since, and the settings and the room that the job had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from vramscope.allocator import Allocator, PoolId, Settings, TraceEntry
from vramscope.columns import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, DeviceMap
from vramscope.errors import BadInputError
from vramscope.replay.operations import Operations, operations_of
from vramscope.replay.start import settings_of
from vramscope.snapshot.columns import I64, Snapshot, exact_sum
from vramscope.trace.columns import BEFORE, DeviceTrace, Moment
from vramscope.trace.moment import moment_at
from vramscope.units import GIB, format_bytes

# No GPU has so much, and the pretend driver has addresses for some expandable segments of it.
_AMPLE_BYTES = 512 * GIB


@dataclass(frozen=True, eq=False)
class Recording:
    """One device's job. ``start`` is the state before the trace, None where it began with nothing or is not known.

    ``start_slot`` (B,) has the allocation of each of its blocks, -1 of free ones. ``settings`` are the recorded ones;
    ``room_bytes`` is how much the process could reserve, None where no out-of-memory tells; ``ample_bytes`` is more than it ever did.
    ``doubts`` are lines about what the file
    leaves open. It holds plain columns, so that other processes can be given it.
    """

    device: int
    start: DeviceMap | None
    start_slot: I64
    slots: int
    operations: Operations
    settings: Settings
    room_bytes: int | None
    ample_bytes: int
    doubts: tuple[str, ...]

    def allocator(
        self, settings: Settings, capacity_bytes: int, on_event: Callable[[TraceEntry], None] | None = None
    ) -> Allocator:
        """Return an allocator in the state before the trace. Raises BadInputError where the card is too small for that."""
        return _continued(self.start, settings, capacity_bytes, on_event)

    @property
    def start_pools(self) -> set[PoolId]:
        """The pools that segments were in before the trace."""
        if self.start is None:
            return set()
        return set(zip(self.start.segment_pool_a.tolist(), self.start.segment_pool_b.tolist(), strict=True))

    def start_addresses(self) -> Iterator[tuple[int, int]]:
        """Yield the slot and the address of each live block from before the trace."""
        if self.start is not None:
            live = np.flatnonzero(self.start_slot >= 0)
            yield from zip(self.start_slot[live].tolist(), self.start.block_address[live].tolist(), strict=True)


def recording_of(snapshot: Snapshot, trace: DeviceTrace) -> Recording:
    """Return what a replay of ``trace`` starts from. Raises BadInputError with one line where the trace tells no operations."""
    place = f"device {trace.device}"
    if trace.contradiction is not None:
        raise BadInputError(f"{place} cannot be replayed: {trace.contradiction}")
    operations = operations_of(trace)
    if not len(operations):
        raise BadInputError(
            f"{place} cannot be replayed: no allocations were recorded (torch.cuda.memory._record_memory_history)"
        )
    settings, doubts = settings_of(snapshot)
    peak_bytes = int(trace.reserved_bytes.max()) if trace.reserved_bytes is not None else 0
    ample_bytes = max(_AMPLE_BYTES, 2 * peak_bytes)
    start, more = _start(trace, settings, ample_bytes)
    room_bytes, of_room = _room(trace)
    return Recording(
        device=trace.device,
        start=None if start is None else start.state,
        start_slot=np.zeros(0, np.int64) if start is None else start.block_allocation,
        slots=len(trace.allocations),
        operations=operations,
        settings=settings,
        room_bytes=room_bytes,
        ample_bytes=ample_bytes,
        doubts=(*doubts, *more, *of_room, *operations.doubts),
    )


def _continued(
    start: DeviceMap | None,
    settings: Settings,
    capacity_bytes: int,
    on_event: Callable[[TraceEntry], None] | None = None,
) -> Allocator:
    if start is None:
        return Allocator(capacity_bytes, settings, on_event=on_event, trace_max_entries=0)
    # All that this process does not reserve is free: what others hold is not part of the capacity.
    free_bytes = capacity_bytes - exact_sum(start.segment_total_bytes)
    return Allocator.from_snapshot(
        start, settings, capacity_bytes=capacity_bytes, device_free_bytes=free_bytes, on_event=on_event
    )


def _start(trace: DeviceTrace, settings: Settings, capacity_bytes: int) -> tuple[Moment | None, tuple[str, ...]]:
    """Return the moment before the trace, if an allocator can continue from it, and what it leaves open."""
    try:
        moment = moment_at(trace, BEFORE)
        if not moment.state.segment_count:
            return None, ()
        # A free that waits is taken as one that is not asked for yet: the trace tells when its memory came back.
        state = moment.state.block_state
        held = np.where(state == ACTIVE_PENDING_FREE, ACTIVE_ALLOCATED, state).astype(np.uint8)
        moment = replace(moment, state=replace(moment.state, block_state=held))
        allocator = _continued(moment.state, settings, capacity_bytes)
    except BadInputError as error:
        return None, (f"the replay begins with nothing, since what lay there before the trace is not known: {error}",)
    uncertain = int(np.count_nonzero(moment.uncertain_block & (moment.block_allocation >= 0)))
    line = f"the ends of {uncertain} blocks from before the trace are not certain: what is free behind them may be less"
    return moment, (*allocator.doubts, *([line] if uncertain else []))


def _room(trace: DeviceTrace) -> tuple[int | None, tuple[str, ...]]:
    """Return how much the process could reserve at most, by its out-of-memories."""
    at = trace.events.oom_event.astype(np.int64)
    if not len(at) or trace.reserved_bytes is None:
        return None, (
            "how much the card had for this process is not recorded: without a capacity it never runs out of memory",
        )
    rooms = (trace.reserved_bytes[at + 1] + trace.events.oom_device_free_bytes.astype(np.int64)).tolist()
    least_bytes, most_bytes = min(rooms), max(rooms)
    if least_bytes == most_bytes:
        return most_bytes, ()
    return most_bytes, (
        f"other processes left between {format_bytes(least_bytes)} and {format_bytes(most_bytes)} to this one at its"
        " out-of-memories: the most is taken",
    )
