"""Reads what agents say into records, and refuses what has the wrong shape: the peer is not trusted to be right. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from vramscope.agent.wire import PROTOCOL_VERSION
from vramscope.columns import DeviceMap
from vramscope.errors import WireError
from vramscope.records import COUNTERS, DeviceInfo, RankInfo

TEXT_CAP = 300
NOTES_CAP = 20
DEVICES_CAP = 64
LARGEST_INT = 1 << 63
# Sums of up to so much stay exact as doubles, of which figures and pictures are made.
LARGEST_MAP_BYTES = 1 << 52

AGENT_FIGURES = (
    "cost_ratio",
    "budget_ratio",
    "last_map_us",
    "longest_pause_us",
    "counters_hz",
    "map_interval_us",
    "dropped_frames",
    "failures",
)


class JobKey(NamedTuple):
    """What ranks of one job have in common, wherever they run."""

    name: str
    run_id: str
    world_size: int

    def job_id(self, attempt: int) -> str:
        """Return a short id, safe in a URL; ``attempt`` tells jobs apart that announced the same and run at once."""
        return hashlib.sha256(json.dumps([*self, attempt]).encode()).hexdigest()[:12]


class Announcement(NamedTuple):
    """An agent's hello."""

    key: JobKey
    simulated: bool
    info: RankInfo


def check_protocol(header: Mapping[str, Any]) -> None:
    """Raise WireError unless the peer's hello names this protocol."""
    if header.get("protocol") != PROTOCOL_VERSION:
        raise WireError(
            f"the peer speaks protocol version {text(header.get('protocol'))} and this collector {PROTOCOL_VERSION}; "
            "install the same vramscope in the job's environment and the collector's"
        )


def read_hello(header: Mapping[str, Any]) -> Announcement:
    """Return what a hello announces. Raises WireError where a field is missing or is not what it must be."""
    job = header.get("job")
    if not isinstance(job, dict):
        raise WireError("a job's hello does not say which job it is; the job runs another vramscope")
    conf = job.get("alloc_conf")
    info = RankInfo(
        rank=whole(job.get("rank"), "rank"),
        local_rank=whole(job.get("local_rank"), "local_rank"),
        pid=whole(job.get("pid"), "pid"),
        host=text(job.get("host")),
        started_unix_us=whole(job.get("started_unix_us"), "started_unix_us"),
        ended_unix_us=None,
        end_reason=None,
        torch_version=text(job.get("torch_version")),
        alloc_conf={text(k): text(v) for k, v in conf.items()} if isinstance(conf, dict) else {},
        map_way=text(job.get("map_way")),
        devices=read_devices(header.get("devices")),
        notes=read_notes(job.get("notes")),
    )
    key = JobKey(text(job.get("name")), text(job.get("run_id")), max(1, whole(job.get("world_size"), "world_size")))
    return Announcement(key, job.get("simulated") is True, info)


def read_devices(found: Any) -> tuple[DeviceInfo, ...]:
    """Return the devices of a hello or of notes."""
    if not isinstance(found, list) or len(found) > DEVICES_CAP or not all(isinstance(one, dict) for one in found):
        raise WireError(f"a job's devices are not a list of at most {DEVICES_CAP} objects")
    return tuple(
        DeviceInfo(
            device=whole(one.get("device"), "device"),
            name=text(one.get("name")),
            uuid=None if one.get("uuid") is None else text(one["uuid"]),
            total_bytes=whole_or_none(one.get("total_bytes"), "total_bytes"),
            backend=text(one.get("backend", "native")),
        )
        for one in found
    )


def read_notes(found: Any) -> tuple[str, ...]:
    """Return lines for the page, at most NOTES_CAP."""
    return tuple(text(note) for note in found[:NOTES_CAP]) if isinstance(found, list) else ()


def read_counters(found: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the counters that this version knows; one that is missing is None."""
    return {name: whole_or_none(found.get(name), name) for name in COUNTERS}


def read_agent(found: Any) -> dict[str, int | float]:
    """Return the agent's own figures that this version knows."""
    if not isinstance(found, dict):
        return {}
    # The comparison is false for NaN, which Python's JSON lets through.
    return {
        name: found[name]
        for name in AGENT_FIGURES
        if isinstance(found.get(name), (int, float)) and 0 <= found[name] < LARGEST_INT
    }


def check_sizes(found: DeviceMap) -> None:
    """Raise WireError where a map's sizes are not those of any GPU: their sums must stay exact in every figure and reply."""
    total_bytes = found.segment_total_bytes
    ends = found.segment_address + total_bytes
    # As doubles, since 64 bits overflow.
    if max(total_bytes.sum(dtype=np.float64), found.block_requested_bytes.sum(dtype=np.float64)) > LARGEST_MAP_BYTES:
        raise WireError(f"a map tells of more than {LARGEST_MAP_BYTES >> 50} PiB")
    if np.any(ends[:-1] > found.segment_address[1:]):
        raise WireError("a map's segments lie over each other")


def text(found: Any) -> str:
    """Return ``found`` as one short line of text; what is not text or a number is only named by its type."""
    if found is None:
        return ""
    line = str(found) if isinstance(found, (str, int, float)) else f"({type(found).__name__})"
    # A lone surrogate is legal in JSON and in neither SQLite nor UTF-8.
    return " ".join(line[:TEXT_CAP].split()).encode("utf-8", "replace").decode()


def whole(found: Any, what: str) -> int:
    """Return ``found`` if it is an integer of at most 63 bits. Raises WireError otherwise."""
    if type(found) is not int or not 0 <= found < LARGEST_INT:
        raise WireError(f"a job sent a {what} that is not a whole number: {text(found)[:40]}")
    return found


def whole_or_none(found: Any, what: str) -> int | None:
    return None if found is None else whole(found, what)


def normal_uuid(uuid: str) -> str:
    """Return a GPU's UUID without NVML's prefix and in lower case: torch gives it with or without."""
    return uuid.lower().removeprefix("gpu-")


def uses_expandable_segments(alloc_conf: Iterable[str]) -> bool:
    """Return whether one of the allocator's settings switches expandable segments on."""
    return any("expandable_segments:true" in value.lower().replace(" ", "") for value in alloc_conf)
