"""The records that travel from the collector to the page and the API: what is known of jobs, devices and history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vramscope.agent.vocabulary import COUNTERS as COUNTERS
from vramscope.columns import DeviceMap


@dataclass(frozen=True)
class DeviceInfo:
    """One device as a job's process sees it. ``uuid`` is None where torch or the driver does not tell it.

    ``backend`` is the allocator: "native", "cudaMallocAsync" (its statistics are empty) or "simulated".
    """

    device: int
    name: str
    uuid: str | None
    total_bytes: int | None
    backend: str = "native"


@dataclass(frozen=True)
class RankInfo:
    """One process of a job. ``ended_unix_us`` is None while its agent is connected; ``end_reason`` says how it ended.

    ``notes`` are lines about what this rank cannot tell, for the page ("torch 2.4 copies the trace with each map").
    ``map_way`` is how maps are taken ("history-free" from torch 2.11 on; else the cheapest other way, named).
    """

    rank: int
    local_rank: int
    pid: int
    host: str
    started_unix_us: int
    ended_unix_us: int | None
    end_reason: str | None
    torch_version: str
    alloc_conf: dict[str, str]
    map_way: str
    devices: tuple[DeviceInfo, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobInfo:
    """A job: one or several ranks that were announced with the same name, run id and world size."""

    id: str
    name: str
    world_size: int
    simulated: bool
    ranks: tuple[RankInfo, ...]

    @property
    def ended(self) -> bool:
        return all(rank.ended_unix_us is not None for rank in self.ranks)


@dataclass(frozen=True)
class DeviceReading:
    """NVML's figures of one GPU at one moment; a figure that could not be read is None and has a line in ``missing``."""

    uuid: str
    nvml_index: int
    name: str
    time_unix_us: int
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    mig_parent_uuid: str | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceStats:
    """The allocator's figures of one device of one rank; None is "not known".

    ``counters`` are the allocator's own (see COUNTERS); ``from_map`` are derived from the newest map, with
    ``map_time_unix_us`` its moment. ``agent`` has the agent's own cost: ``cost_ratio`` (share of wall time), ``budget_ratio``,
    ``last_map_us``, ``longest_pause_us``, ``counters_hz``, ``map_interval_us``, ``dropped_frames``.
    """

    job_id: str
    rank: int
    device: int
    time_unix_us: int
    step: int | None
    counters: dict[str, int | None]
    from_map: dict[str, int | float | str | None]
    map_time_unix_us: int | None
    agent: dict[str, Any]
    nvml: DeviceReading | None
    reserved_by_others_bytes: int | None = None
    notes: tuple[str, ...] = ()


# What is kept as history for each (rank, device); each has a minimum and a maximum in the rollups.
HISTORY = (
    "reserved_bytes",
    "allocated_bytes",
    "active_bytes",
    "requested_bytes",
    "inactive_split_bytes",
    "num_alloc_retries",
    "num_ooms",
    "device_free_bytes",
    "largest_free_block_bytes",
    "largest_fit_bytes",
    "nvml_used_bytes",
)


@dataclass(frozen=True)
class Mark:
    """Something at one moment. ``kind`` is step, retry, oom, user, start, end or gap; ``device`` is None for the whole rank."""

    time_unix_us: int
    rank: int
    kind: str
    label: str
    device: int | None = None


@dataclass(frozen=True, eq=False)
class Timeline:
    """History of one (rank, device) over a range, as minima and maxima at one resolution.

    ``time_unix_us`` (N,) int64; each of ``low`` and ``high`` maps a name of HISTORY to (N,) float64, NaN where unknown.
    ``resolution_us`` is 0 for raw samples, else the width of a point; ``marks_left_out`` says how many marks did not fit.
    A gap (no sample for longer than three points) is one point that is NaN everywhere.
    """

    time_unix_us: npt.NDArray[np.int64]
    low: dict[str, npt.NDArray[np.float64]]
    high: dict[str, npt.NDArray[np.float64]]
    resolution_us: int
    marks: tuple[Mark, ...] = ()
    marks_left_out: int = 0
    first_unix_us: int | None = None
    last_unix_us: int | None = None


@dataclass(frozen=True)
class DumpInfo:
    """A snapshot file written by a job on request. ``path`` is on this machine."""

    id: str
    job_id: str
    rank: int
    time_unix_us: int
    path: str
    file_bytes: int


@dataclass(frozen=True)
class CollectorStatus:
    """Whether the collector answers, and what it has to say: each line of ``messages`` is for the page."""

    connected: bool
    messages: tuple[str, ...] = ()
    nvml_available: bool = False
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StackReply:
    """The stack of one block: (filename, line, name) from the innermost frame out; ``reason`` says why there is none."""

    frames: tuple[tuple[str, int, str], ...] = ()
    reason: str | None = None


class LiveData(Protocol):
    """What the dashboard asks; implemented by collectors.gateway over the socket and the store, and by tests in memory.

    Every method answers from what is known when the collector is away (history, last maps) and never raises for that;
    ``status().connected`` tells. An unknown job, rank or device gives None or an empty result.
    ``rank=None`` means the lowest rank that has the device.
    """

    def status(self) -> CollectorStatus: ...

    def jobs(self) -> list[JobInfo]: ...

    def stats(self, job_id: str, device: int, rank: int | None = None) -> DeviceStats | None: ...

    def device_map(
        self, job_id: str, device: int, rank: int | None = None, *, max_age_s: float = 0.25
    ) -> DeviceMap | None:
        """Return a map at most ``max_age_s`` old if the agent's budget allows, else the newest (its time tells)."""
        ...

    def timeline(
        self,
        job_id: str,
        device: int,
        rank: int | None = None,
        *,
        from_unix_us: int | None,
        to_unix_us: int | None,
        points: int,
    ) -> Timeline | None: ...

    def readings(self) -> list[DeviceReading]: ...

    def stack(self, job_id: str, device: int, rank: int | None, address: int) -> StackReply: ...

    def dump(self, job_id: str, rank: int | None = None) -> DumpInfo:
        """Ask the job to write a snapshot. Raises VramscopeError with one line when it cannot."""
        ...

    def dumps(self, job_id: str | None = None) -> list[DumpInfo]: ...
