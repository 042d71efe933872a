"""Compares what the API says of one device with what torch, the driver and NVML said inside the job, figure by figure."""

from __future__ import annotations

from itertools import compress
from typing import Any

from tests.pretend_gpu.processes import Api, Job
from tests.waiting import wait_for

# The agent asks the driver for its free memory once a second, so counters are compared when they are this much younger.
SETTLED_US = 1_500_000
NAMED = ("parameter", "gradient", "optimizer state")
# Our names and torch.cuda.memory_stats's, spelled out, so that a wrong place in the agent's own table is noticed.
COUNTERS = {
    "reserved_bytes": "reserved_bytes.all.current",
    "reserved_peak_bytes": "reserved_bytes.all.peak",
    "allocated_bytes": "allocated_bytes.all.current",
    "allocated_peak_bytes": "allocated_bytes.all.peak",
    "active_bytes": "active_bytes.all.current",
    "active_peak_bytes": "active_bytes.all.peak",
    "requested_bytes": "requested_bytes.all.current",
    "inactive_split_bytes": "inactive_split_bytes.all.current",
    "segments": "segment.all.current",
    "active_blocks": "active.all.current",
    "inactive_split_blocks": "inactive_split.all.current",
    "allocations": "allocation.all.allocated",
    "num_alloc_retries": "num_alloc_retries",
    "num_ooms": "num_ooms",
}
HISTORY_OF_COUNTERS = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")


def settled_stats(api: Api, job: Job, device: int, *, rank: int = 0, nvml: bool = True) -> dict[str, Any]:
    """Return the figures of ``device``, every part of them taken after the job's truth, which has not changed since.

    Without ``nvml`` no reading of NVML is waited for.
    """
    path = f"{device_path(api, job, device)}/stats?max_age_ms=0&rank={rank}"

    def settled() -> dict[str, Any] | None:
        found: dict[str, Any] | None = api.find(path)
        if found is None or found["map_time_unix_us"] is None or (nvml and found["nvml"] is None):
            return None
        truth_us = job.truth["time_unix_us"]
        times = (found["time_unix_us"] - SETTLED_US, found["map_time_unix_us"])
        return found if min(*times, found["nvml"]["time_unix_us"] if nvml else truth_us) >= truth_us else None

    return wait_for(settled, f"counters, a map and an NVML reading of device {device} after the truth")


def id_of(api: Api, job: Job) -> str:
    """Return the id under which the API knows the job."""
    described = wait_for(lambda: api.job_of(job.truth["pid"]), "the job in /jobs")
    return str(described["id"])


def device_path(api: Api, job: Job, device: int) -> str:
    return f"/jobs/{id_of(api, job)}/devices/{device}"


def check_device(api: Api, job: Job, device: int) -> None:
    """Assert that all routes agree with the job's truth about ``device``."""
    stats = settled_stats(api, job, device)
    check_counters(stats, job, device)
    check_nvml(stats, job, device)
    check_map(api, job, device)
    check_map_figures(stats, job, device)
    check_owners(api, job, device)
    check_timeline(api, job, device, settled_us=stats["time_unix_us"])


def check_counters(stats: dict[str, Any], job: Job, device: int) -> None:
    truth = job.truth["devices"][str(device)]
    expected = {name: truth["stats"][key] for name, key in COUNTERS.items()}
    expected |= {"device_free_bytes": truth["free_bytes"], "device_total_bytes": truth["total_bytes"]}
    assert {name: stats[name] for name in expected} == expected


def check_nvml(stats: dict[str, Any], job: Job, device: int) -> None:
    truth = job.truth["devices"][str(device)]["nvml"]
    found = {name: stats["nvml"][name] for name in truth}
    found["processes"] = sorted(found["processes"])
    assert found == truth
    assert stats["nvml"]["missing"] == []


def check_map(api: Api, job: Job, device: int) -> None:
    found = api.get(f"{device_path(api, job, device)}/map?max_age_ms=0")["segments"]
    assert comparable(found, device) == comparable(job.truth["segments"], device)


def comparable(segments: list[dict[str, Any]], device: int) -> list[dict[str, Any]]:
    """Return the segments of ``device`` by address, less the frames and the stale request of inactive blocks."""
    ours = sorted((s for s in segments if s["device"] == device), key=lambda s: int(s["address"]))
    return [
        {
            **{name: value for name, value in segment.items() if name != "frames"},
            "segment_pool_id": list(segment["segment_pool_id"]),
            "blocks": [
                (b["address"], b["size"], b["state"], b["requested_size"] if b["state"] != "inactive" else None)
                for b in segment["blocks"]
            ],
        }
        for segment in ours
    ]


def check_map_figures(stats: dict[str, Any], job: Job, device: int) -> None:
    """Assert the figures that derive from the map, against sums over torch's own segments."""
    segments = [segment for segment in job.truth["segments"] if segment["device"] == device]
    blocks = [block for segment in segments for block in segment["blocks"]]
    free = [block["size"] for block in blocks if block["state"] == "inactive"]
    active = [block for block in blocks if block["state"] != "inactive"]
    # Where a plain allocation looks: the default stream and pool.
    default = [s for s in segments if s["stream"] == 0 and tuple(s["segment_pool_id"]) == (0, 0)]
    largest = max((b["size"] for s in default for b in s["blocks"] if b["state"] == "inactive"), default=0)
    expected = {
        "blocks": len(blocks),
        "pending_free_bytes": sum(b["size"] for b in blocks if b["state"] == "active_pending_free"),
        "free_cached_bytes": sum(free),
        "rounding_waste_bytes": sum(b["size"] - b["requested_size"] for b in active),
        "largest_free_block_bytes": largest,
        "external_fragmentation_ratio": 1 - largest / sum(free) if free else None,
        "stranded_ratio": stats["inactive_split_bytes"] / sum(s["total_size"] for s in segments),
    }
    assert {name: stats[name] for name in expected} == expected


def check_owners(api: Api, job: Job, device: int) -> None:
    """Assert that every tensor of the model and the optimizer is listed with its block's bytes, and nothing else is."""
    found = api.get(f"{device_path(api, job, device)}/owners?limit=100000&max_age_ms=0")
    tensors = [tensor for tensor in job.truth["tensors"] if tensor["device"] == device]
    block_bytes = {b["address"]: b["size"] for s in job.truth["segments"] for b in s["blocks"]}
    expected = sorted(
        (t["category"], t["name"], str(tuple(t["shape"])), t["dtype"], t["address"], block_bytes[t["address"]])
        for t in tensors
    )
    named = sorted(
        tuple(row[key] for key in ("category", "name", "shape", "dtype", "address", "bytes"))
        for row in found["owners"]
        if row["category"] in NAMED
    )
    assert named == expected
    active_bytes = job.truth["devices"][str(device)]["stats"]["active_bytes.all.current"]
    assert found["active_bytes"] == sum(row["bytes"] for row in found["owners"]) == active_bytes


def check_timeline(api: Api, job: Job, device: int, *, settled_us: int) -> None:
    """Assert that every sample since the truth shows the truth, the last one included.

    What is read once a second (the driver, NVML) has to be right in the samples since ``settled_us``, when it was.
    """
    since = job.truth["time_unix_us"] + 100_000
    path = f"{device_path(api, job, device)}/timeline?from={since}&points=500"

    def written() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(path)
        return found if any(at > settled_us for at in found["time_unix_us"]) else None

    found = wait_for(written, "history since the figures settled")
    truth = job.truth["devices"][str(device)]
    for name in HISTORY_OF_COUNTERS:
        expected = {truth["stats"][f"{name}.all.current"]}
        assert set(found["low"][name]) == set(found["high"][name]) == expected, name
    settled = [at > settled_us for at in found["time_unix_us"]]
    for name, expected in (
        ("device_free_bytes", truth["free_bytes"]),
        ("nvml_used_bytes", truth["nvml"]["used_bytes"]),
    ):
        assert set(compress(found["high"][name], settled)) == {expected}, name
