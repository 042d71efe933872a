"""The records of vramscope.records as JSON objects and back: for replies on the socket and for the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vramscope.records import DeviceInfo, DeviceReading, DeviceStats, DumpInfo, JobInfo, RankInfo

Json = Mapping[str, Any]


def to_json(record: JobInfo | RankInfo | DeviceReading | DeviceStats | DumpInfo) -> dict[str, Any]:
    """Return the record as a JSON object; the functions below read it back."""
    return asdict(record)


def job_from_json(found: Json) -> JobInfo:
    return JobInfo(**{**found, "ranks": tuple(rank_from_json(rank) for rank in found["ranks"])})


def rank_from_json(found: Json) -> RankInfo:
    devices = tuple(DeviceInfo(**device) for device in found["devices"])
    return RankInfo(**{**found, "devices": devices, "notes": tuple(found["notes"])})


def reading_from_json(found: Json) -> DeviceReading:
    processes = found["processes"]
    if processes is not None:
        processes = tuple((pid, used_bytes) for pid, used_bytes in processes)
    return DeviceReading(**{**found, "processes": processes, "missing": tuple(found["missing"])})


def stats_from_json(found: Json) -> DeviceStats:
    nvml = reading_from_json(found["nvml"]) if found["nvml"] else None
    return DeviceStats(**{**found, "nvml": nvml, "notes": tuple(found["notes"])})


def dump_from_json(found: Json) -> DumpInfo:
    return DumpInfo(**found)
