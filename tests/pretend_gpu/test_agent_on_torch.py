"""The agent inside jobs on the CUDA build of torch: what it sends is what torch says, and it leaves the rest alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pretend_gpu.conftest import Pretend
from vramscope.units import GIB

FOLDER = Path(__file__).parent
TWO_DEVICES = (8 * GIB, 2 * GIB)


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "max_split_size_mb:64"])
def test_everything_the_agent_sends_agrees_with_torch(pretend: Pretend, conf: str) -> None:
    # WHEN a job on two devices and two streams attaches under these allocator settings
    extra = {"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {}
    found = pretend.run(FOLDER / "agent_release_check.py", devices=TWO_DEVICES, extra=extra)

    # THEN
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("OK torch 2.14.1")


def test_cuda_malloc_async_is_told_and_nothing_reads_as_0(pretend: Pretend) -> None:
    # WHEN
    extra = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    found = pretend.run(FOLDER / "agent_job_async.py", extra=extra)

    # THEN
    assert found.returncode == 0, found.stdout + found.stderr
    notes, counters, reply, count = map(json.loads, found.stdout.splitlines())
    assert [described["backend"] for described in notes["devices"]] == ["cudaMallocAsync"]
    assert "cudaMallocAsync allocator gives torch no statistics and no map" in notes["notes"][0]
    (row,) = counters["devices"]
    known = {name for name, value in row.items() if value is not None}
    assert known == {"device", "device_free_bytes", "device_total_bytes"}
    assert (reply["ok"], reply["error"]) == (False, "device 0 has no map in this job")
    assert count["maps"] == 0


def test_the_agent_neither_initialises_cuda_nor_changes_the_jobs_device_or_history(pretend: Pretend) -> None:
    # WHEN
    found = pretend.run(FOLDER / "agent_job_quiet.py", devices=TWO_DEVICES)

    # THEN
    assert found.returncode == 0, found.stdout + found.stderr
    told = json.loads(found.stdout)
    assert told["note"] == ["this job has not used CUDA yet; its memory is shown from its first use on"]
    assert told["reason"] == "the job has not used CUDA yet"
    assert told["initialised_by_attach"] is False
    assert told["devices"] == [1]
    assert told["notes_after"] == []
    assert told["current_device"] == 0
    assert told["history"] is False
