"""Would it fit: how a request would have been served at a moment of a file, what is in the way, and the largest one that would be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vramscope.allocator import Allocator, PoolId, Settings
from vramscope.allocator.driver import PAGE_BYTES
from vramscope.allocator.prospect import CACHED_BLOCK, MORE_OF_EXPANDABLE, NEW_SEGMENT
from vramscope.allocator.rounding import SMALL_LIMIT_BYTES, SMALL_SEGMENT_BYTES, round_up
from vramscope.columns import INACTIVE, DeviceMap
from vramscope.compare.side import Side
from vramscope.errors import BadInputError
from vramscope.replay.start import free_at, settings_of
from vramscope.snapshot.columns import exact_sum
from vramscope.trace.out_of_memory import Holes


@dataclass(frozen=True)
class Largest:
    """The largest request of a pool that would be served, and how; ``size_bytes`` is 0 where none would be."""

    pool: PoolId
    size_bytes: int
    way: str | None


@dataclass(frozen=True)
class Answer:
    """How a request of ``size_bytes`` on ``stream`` would be served after event ``event`` of a device.

    ``way`` is None where it would fail. Where ``driver_free_bytes`` is None, it is the way without anything from the driver, and
    ``way_if_driver_has`` the one that comes first if the driver has ``driver_needed_bytes`` free (at most so much is needed);
    these two are None where the request is served from a cached block. ``released_bytes`` go back to the driver on the way.
    ``holes`` are the free blocks of the request's stream, pool and size class; ``elsewhere_bytes`` are free in others.
    ``largest`` has a row a pool, with nothing from a driver of which nothing is known.
    """

    device: int
    event: int
    stream: int
    size_bytes: int
    block_bytes: int
    way: str | None
    released_bytes: int
    driver_free_bytes: int | None
    driver_needed_bytes: int | None
    way_if_driver_has: str | None
    holes: Holes
    elsewhere_bytes: int
    largest: tuple[Largest, ...]
    doubts: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def would_fit(side: Side, size_bytes: int, *, stream: int = 0, driver_free_bytes: int | None = None) -> Answer:
    """Return how a request would be served at the moment of ``side``, in the default pool.

    ``driver_free_bytes`` is what the driver has free, None to take it from the file. Raises BadInputError with one line where
    the allocator cannot continue from that moment.
    """
    settings, doubts = settings_of(side.traced.snapshot)
    if driver_free_bytes is None:
        driver_free_bytes, more = _free_of_file(side)
        doubts += more
    allocator = _continued(side, settings, driver_free_bytes or 0)
    prospect = allocator.prospect(stream)
    fit = prospect.fit(size_bytes)
    needs_driver = driver_free_bytes is None and fit.way != CACHED_BLOCK
    holes, elsewhere_bytes = _holes(side.state, stream, is_small=fit.block_bytes <= SMALL_LIMIT_BYTES)
    return Answer(
        device=side.trace.device,
        event=side.moment.event,
        stream=stream,
        size_bytes=size_bytes,
        block_bytes=fit.block_bytes,
        way=fit.way,
        released_bytes=fit.released_bytes,
        driver_free_bytes=driver_free_bytes,
        driver_needed_bytes=_most_needed_bytes(settings, fit.block_bytes, fit.tried_bytes) if needs_driver else None,
        way_if_driver_has=(MORE_OF_EXPANDABLE if settings.expandable_segments else NEW_SEGMENT)
        if needs_driver
        else None,
        holes=holes,
        elsewhere_bytes=elsewhere_bytes,
        largest=tuple(Largest(pool, *allocator.largest_fit(stream, pool)) for pool in _pools(side.state)),
        doubts=(*doubts, *allocator.doubts, *side.notes),
    )


def _free_of_file(side: Side) -> tuple[int | None, tuple[str, ...]]:
    found = free_at(side.trace, side.moment.event)
    if found is None:
        return None, ()
    if found.oom_event == side.moment.event:
        return found.size_bytes, ()
    return found.size_bytes, (
        f"what the driver has free is counted from the out-of-memory at event {found.oom_event}, as if no other process had"
        " taken or given any since",
    )


def _continued(side: Side, settings: Settings, driver_free_bytes: int) -> Allocator:
    # The size of the card is not recorded; a request meets no other limit than what is free.
    capacity_bytes = exact_sum(side.state.segment_total_bytes) + driver_free_bytes
    capacity_bytes += side.state.segment_count * PAGE_BYTES
    try:
        return Allocator.from_snapshot(
            side.state, settings, capacity_bytes=capacity_bytes, device_free_bytes=driver_free_bytes
        )
    except BadInputError as error:
        raise BadInputError(f"{side.name}, device {side.trace.device}: {error}, so no allocator can continue") from None


def _most_needed_bytes(settings: Settings, block_bytes: int, segment_bytes: int) -> int:
    """Return how much memory of the driver serves a request for which nothing is cached."""
    if not settings.expandable_segments:
        return round_up(segment_bytes, PAGE_BYTES)
    return round_up(
        block_bytes, SMALL_SEGMENT_BYTES if block_bytes <= SMALL_LIMIT_BYTES else settings.large_segment_bytes
    )


def _holes(state: DeviceMap, stream: int, *, is_small: bool) -> tuple[Holes, int]:
    """Return the free blocks that a request may use, and how much is free in others."""
    fits = (state.segment_stream == np.uint64(stream)) & (state.segment_is_small == is_small)
    fits &= (state.segment_pool_a == 0) & (state.segment_pool_b == 0)
    is_free, may_serve = state.block_state == INACTIVE, fits[state.block_segment()]
    usable, others = state.block_bytes[is_free & may_serve], state.block_bytes[is_free & ~may_serve]
    holes = Holes(len(usable), exact_sum(usable), int(usable.max()) if len(usable) else 0)
    return holes, exact_sum(others)


def _pools(state: DeviceMap) -> list[PoolId]:
    private = zip(state.segment_pool_a.tolist(), state.segment_pool_b.tolist(), strict=True)
    return sorted({(0, 0), *private})
