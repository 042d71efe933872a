"""Whether the picture is live, and what the page has to say about it: the light's text, the banners, the agent's cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dashboard.figures.selection import Selection, find_rank, started_unix_us
from vramscope.records import CollectorStatus, DeviceInfo, DeviceStats, JobInfo, RankInfo
from vramscope.units import format_ratio

Banner = tuple[str, str]

LIGHTS = {
    "live": "live",
    "ended": "ended",
    "gone": "collector not reachable – retrying",
    "none": "waiting for a job",
    "paused": "paused",
}


def light(status: CollectorStatus, jobs: Sequence[JobInfo], selection: Selection) -> str:
    """Return the key of LIGHTS for what is shown; that the page is paused is the browser's to know."""
    if not status.connected:
        return "gone"
    found = find_rank(jobs, selection)
    if found is None:
        return "none"
    return "live" if found[1].ended_unix_us is None else "ended"


def banners(
    status: CollectorStatus, jobs: Sequence[JobInfo], selection: Selection, stats: DeviceStats | None
) -> list[Banner]:
    """Return what to tell about the collector, the job and the rank, as (tone, line), most urgent first."""
    found: list[Banner] = []
    if not status.connected:
        kept = " What was recorded stays on the page." if jobs else " Start it with: vramscope collect"
        found.append(("warn", f"The collector is not reachable; trying again.{kept}"))
    known = find_rank(jobs, selection)
    if known is not None:
        found += _rank_banners(known[1], selection, stats)
    found += [("quiet", line) for line in status.messages]
    return list(dict.fromkeys(found))


def newer_job(jobs: Sequence[JobInfo], selection: Selection) -> JobInfo | None:
    """Return a job that runs while the shown one has ended, the one that started last; None where that is not so."""
    shown = next((job for job in jobs if job.id == selection.job), None)
    running = [job for job in jobs if not job.ended]
    return max(running, key=started_unix_us) if shown is not None and shown.ended and running else None


def _rank_banners(rank: RankInfo, selection: Selection, stats: DeviceStats | None) -> list[Banner]:
    found: list[Banner] = []
    if rank.ended_unix_us is not None:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(rank.ended_unix_us / 1e6))
        reason = f": {rank.end_reason}" if rank.end_reason else ""
        found.append(("info", f"This job ended at {clock}{reason}. The last picture of its memory is shown."))
    if not rank.devices:
        found.append(("info", f"Rank {rank.rank} has not used a GPU yet; its memory appears as soon as it does."))
    device = find_device(rank, selection.device)
    if device is not None and device.backend == "cudaMallocAsync":
        found.append(
            (
                "warn",
                "This job uses cudaMallocAsync, whose statistics are empty: PyTorch cannot tell segments, blocks or peaks. "
                "With backend:native in PYTORCH_ALLOC_CONF it can.",
            )
        )
    notes = (*rank.notes, *(stats.notes if stats else ()))
    return found + [("quiet", f"Rank {rank.rank}: {line}") for line in dict.fromkeys(notes)]


def find_device(rank: RankInfo, number: int | None) -> DeviceInfo | None:
    return next((device for device in rank.devices if device.device == number), None)


def device_name(rank: RankInfo, number: int | None) -> str:
    """Return "GPU 0 · NVIDIA H100 80GB HBM3", or that the rank has none yet."""
    device = find_device(rank, number)
    return f"GPU {number} · {device.name}" if device else "no GPU in use yet"


def agent_cost(stats: DeviceStats) -> str:
    """Return what the agent costs the job: its share of wall time, its newest map, and the longest pause it caused."""
    agent = stats.agent
    parts = []
    if agent.get("cost_ratio") is not None:
        budget = f" of a budget of {format_ratio(agent['budget_ratio'])}" if agent.get("budget_ratio") else ""
        parts.append(f"{format_ratio(agent['cost_ratio'])} of wall time{budget}")
    if agent.get("last_map_us") is not None:
        parts.append(f"a map takes {agent['last_map_us'] / 1000:.1f} ms")
    if agent.get("longest_pause_us") is not None:
        parts.append(f"longest pause {agent['longest_pause_us'] / 1000:.1f} ms")
    if agent.get("dropped_frames"):
        parts.append(f"{agent['dropped_frames']} messages dropped")
    if agent.get("failures"):
        parts.append(f"{agent['failures']} samples failed")
    return "The agent's cost to the job: " + " · ".join(parts) if parts else ""
