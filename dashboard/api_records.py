"""Records as the plain values that ``/api/v1`` sends: the names of the records, None where a figure is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from dashboard.maps import owners_of
from vramscope import owners
from vramscope.columns import DeviceMap, to_segments
from vramscope.metrics import MapFigures, largest_free_blocks
from vramscope.records import COUNTERS, DeviceStats, DumpInfo, JobInfo, Timeline

# Named here too, so that a figure is null, not absent, until a map has arrived.
MAP_FIGURES = tuple(f.name for f in fields(MapFigures))


def job(found: JobInfo) -> dict[str, Any]:
    """Return one job with its ranks and their devices."""
    return {
        "id": found.id,
        "name": found.name,
        "simulated": found.simulated,
        "ended": found.ended,
        "world_size": found.world_size,
        "ranks": [asdict(rank) for rank in found.ranks],
    }


def stats(found: DeviceStats, newest: DeviceMap | None, *, simulated: bool) -> dict[str, Any]:
    """Return the figures of one device, flat; a counter of the allocator's own goes before the same figure of the map."""
    figures = {**dict.fromkeys((*COUNTERS, *MAP_FIGURES)), **found.from_map}
    figures.update((name, value) for name, value in found.counters.items() if value is not None)
    return {
        **figures,
        "largest_free_blocks": None if newest is None else [block._asdict() for block in largest_free_blocks(newest)],
        "job": found.job_id,
        "rank": found.rank,
        "device": found.device,
        "simulated": simulated,
        "time_unix_us": found.time_unix_us,
        "map_time_unix_us": found.map_time_unix_us,
        "step": found.step,
        "reserved_by_others_bytes": found.reserved_by_others_bytes,
        "nvml": asdict(found.nvml) if found.nvml else None,
        "agent": found.agent,
        "notes": found.notes,
    }


def device_map(found: DeviceMap) -> dict[str, Any]:
    """Return the segments and blocks of one device in PyTorch's own form."""
    return {
        "device": found.device,
        "time_unix_us": found.time_unix_us,
        "version": found.version,
        "segments": to_segments(found),
    }


def device_owners(found: DeviceMap, *, limit: int) -> dict[str, Any]:
    """Return who owns the active bytes: the ``limit`` largest tensors, and for each category what is not among them.

    The ``bytes`` of all entries add up to ``active_bytes``, however many tensors are left out.
    """
    assigned = owners_of(found)
    totals = owners.totals(found, assigned)
    listed = [_owner(row) for row in owners.top_tensors(found, assigned, limit)]
    omitted = owners.count(assigned) - len(listed)
    rest = dict(totals)
    for row in listed:
        rest[row["category"]] -= row["bytes"]
    return {
        "device": found.device,
        "time_unix_us": found.time_unix_us,
        "version": found.version,
        "active_bytes": sum(totals.values()),
        "categories": totals,
        "owners": listed + [_remainder(category, left) for category, left in rest.items() if left],
        "truncated": omitted > 0,
        "omitted": omitted,
    }


def _owner(row: owners.OwnerRow) -> dict[str, Any]:
    return {name: None if value == "" else value for name, value in asdict(row).items()}


def _remainder(category: str, left_bytes: int) -> dict[str, Any]:
    unnamed = dict.fromkeys(("name", "shape", "dtype", "address"))
    return {"category": category, **unnamed, "bytes": left_bytes, "rule": "the rest of this category"}


def timeline(found: Timeline) -> dict[str, Any]:
    """Return the history of one device: minima and maxima by name, null where unknown."""
    return {
        "time_unix_us": found.time_unix_us,
        "resolution_us": found.resolution_us,
        "low": found.low,
        "high": found.high,
        "marks": [asdict(mark) for mark in found.marks],
        "marks_left_out": found.marks_left_out,
        "first_unix_us": found.first_unix_us,
        "last_unix_us": found.last_unix_us,
    }


def dump(found: DumpInfo) -> Mapping[str, Any]:
    """Return one snapshot file with the path, under the application's base, from where it is downloaded."""
    return {**asdict(found), "download": f"dumps/{found.id}"}
