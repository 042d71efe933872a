"""What happens around a real job on the pretend GPU when a process dies, several share a GPU, or figures do not exist."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.gateway import Gateway
from tests.pretend_gpu.comparison import check_counters, check_device, check_map, device_path, settled_stats
from tests.pretend_gpu.conftest import Pretend
from tests.pretend_gpu.processes import Api, Job, Machine
from tests.waiting import wait_for
from vramscope.units import GIB

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def machine(pretend: Pretend) -> Iterator[Machine]:
    made = Machine(pretend, devices=(8 * GIB, 3 * GIB))
    yield made
    made.stop()


def complaints(job: Job) -> list[str]:
    """Return what the job's process printed that torch and its allocator would not have."""
    return [line for line in job.log.read_text().splitlines() if "vramscope" in line or "Traceback" in line]


def test_a_job_outlives_its_collector_and_finds_the_next(machine: Machine) -> None:
    # GIVEN a job that is watched
    job = machine.start_job()
    collector = machine.start_collector()
    api = machine.start_server()
    job.do("train 2")
    check_device(api, job, 0)
    before = wait_for(lambda: api.job_of(job.truth["pid"]), "the job in /jobs")

    # WHEN the collector is killed, the job trains on, and another collector starts
    collector.kill()
    collector.wait()
    job.do("train 3")
    machine.start_collector()

    # THEN the job is found again as the same one, its figures are right, and its history has both parts
    job.do("fragment")
    check_device(api, job, 0)
    after = api.job_of(job.truth["pid"])
    assert after is not None
    assert (after["id"], after["ended"]) == (before["id"], False)
    timeline = api.get(f"{device_path(api, job, 0)}/timeline")
    assert timeline["first_unix_us"] < job.truth["time_unix_us"] < timeline["last_unix_us"]
    assert complaints(job) == []


def test_a_job_without_a_collector_trains_and_ends_in_silence(machine: Machine) -> None:
    # GIVEN a job that no collector ever answers
    job = machine.start_job()

    # WHEN it trains and ends
    job.do("train 3")
    job.process.communicate(timeout=60)

    # THEN it ended well and said nothing
    assert job.process.returncode == 0
    assert complaints(job) == []


def test_a_job_that_ends_stays_to_look_at(machine: Machine) -> None:
    # GIVEN a job that is watched
    job = machine.start_job()
    machine.start_collector()
    api = machine.start_server()
    job.do("train 2")
    settled_stats(api, job, 0)
    path = device_path(api, job, 0)

    # WHEN it ends
    job.process.communicate(timeout=60)

    # THEN it is marked as ended, with its last map; and NVML's memory is free again
    ended = wait_for(lambda: ended_job(api, job), "the job as ended")
    assert ended["ranks"][0]["end_reason"] == "exited"
    assert api.get(f"{path}/map")["segments"]
    wait_for(lambda: used_bytes(api) == {0}, "all of the GPUs' memory free")


def test_a_job_that_is_killed_is_marked_as_lost(machine: Machine) -> None:
    # GIVEN a job that is watched
    job = machine.start_job()
    machine.start_collector()
    api = machine.start_server()
    job.do("train 1")
    settled_stats(api, job, 0)

    # WHEN it is killed
    job.process.send_signal(signal.SIGKILL)
    job.process.communicate(timeout=60)

    # THEN it is marked as lost
    ended = wait_for(lambda: ended_job(api, job), "the job as ended")
    assert "lost" in ended["ranks"][0]["end_reason"]


def test_a_job_that_detaches_trains_on(machine: Machine) -> None:
    # GIVEN a job that is watched
    job = machine.start_job()
    machine.start_collector()
    api = machine.start_server()
    settled_stats(api, job, 0)

    # WHEN it detaches
    job.do("detach")

    # THEN it is marked so, and trains on
    ended = wait_for(lambda: ended_job(api, job), "the job as ended")
    assert ended["ranks"][0]["end_reason"] == "detached"
    assert job.do("train 1")
    assert complaints(job) == []


def ended_job(api: Api, job: Job) -> dict[str, Any] | None:
    found = api.job_of(job.truth["pid"])
    return found if found and found["ended"] else None


def used_bytes(api: Api) -> set[int]:
    return {reading["used_bytes"] for reading in api.get("/devices")["devices"]}


def test_ranks_that_share_a_gpu_are_one_job_and_told_apart(machine: Machine) -> None:
    # GIVEN two ranks of one job on the same GPU
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
    ranks = [machine.start_job(extra={**shared, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in (0, 1)]
    machine.start_collector()
    api = machine.start_server()

    # WHEN both have trained, and one holds more than the other
    ranks[0].do("train 2")
    ranks[1].do("fragment")
    ranks[0].do("wait")
    jobs = wait_for(lambda: (found := api.get("/jobs")["jobs"]) and len(found[0]["ranks"]) == 2 and found, "two ranks")

    # THEN they are one job, each with its own figures, and NVML's processes are both
    assert len(jobs) == 1
    assert [(rank["rank"], rank["pid"]) for rank in jobs[0]["ranks"]] == [(r, ranks[r].truth["pid"]) for r in (0, 1)]
    for rank, other in ((0, 1), (1, 0)):
        stats = settled_stats(api, ranks[rank], 0, rank=rank)
        check_counters(stats, ranks[rank], 0)
        reserved = {r: ranks[r].truth["devices"]["0"]["stats"]["reserved_bytes.all.current"] for r in (0, 1)}
        assert stats["reserved_by_others_bytes"] == reserved[other]
        assert sorted(pid for pid, _ in stats["nvml"]["processes"]) == sorted(job.truth["pid"] for job in ranks)
        assert stats["nvml"]["used_bytes"] == sum(reserved.values())


def test_gpus_are_matched_by_uuid_where_the_job_renumbers_them(machine: Machine) -> None:
    # GIVEN a job for which NVML's GPU 1 is device 0
    job = machine.start_job(extra={"CUDA_VISIBLE_DEVICES": "1"})
    machine.start_collector()
    api = machine.start_server()

    # WHEN it has trained
    job.do("train 1")

    # THEN all its figures are right, and its reading is that of GPU 1
    check_device(api, job, 0)
    reading = settled_stats(api, job, 0)["nvml"]
    assert (reading["nvml_index"], reading["total_bytes"]) == (1, 3 * GIB)
    assert [pid for pid, _ in reading["processes"]] == [job.truth["pid"]]


@pytest.mark.parametrize(("nvml", "fault"), [(False, {}), (True, {"FAKE_NVML_FAIL": "15"})])
def test_without_nvml_the_rest_goes_on_and_says_what_is_missing(
    machine: Machine, nvml: bool, fault: dict[str, str]
) -> None:
    # GIVEN a collector whose NVML is not there, or says that the GPU is lost
    job = machine.start_job()
    machine.start_collector(nvml=nvml, extra=fault)
    api = machine.start_server()

    # WHEN the job trains
    job.do("train 2")

    # THEN its own figures are right, there is no reading that looks like one, and a line says what is missing
    stats = settled_stats(api, job, 0, nvml=False)
    check_counters(stats, job, 0)
    check_map(api, job, 0)
    assert stats["nvml"] is None or stats["nvml"]["used_bytes"] is None
    messages = Gateway(machine.folder / "run", machine.folder / "state").status().messages
    assert any("NVML" in message for message in messages)


def test_an_allocator_without_statistics_is_said_to_have_none(machine: Machine) -> None:
    # GIVEN a job on cudaMallocAsync, whose statistics torch leaves empty
    job = machine.start_job(extra={"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"})
    machine.start_collector()
    api = machine.start_server()

    # WHEN it trains
    job.do("train 1")
    found = wait_for(lambda: api.job_of(job.truth["pid"]), "the job in /jobs")

    # THEN its figures are unknown, not 0, and a note says why; NVML's reading is there
    stats = wait_for(
        lambda: (s := api.find(f"/jobs/{found['id']}/devices/0/stats")) and s["device_free_bytes"] and s["nvml"] and s,
        "figures of the device",
    )
    assert stats["reserved_bytes"] is None
    assert stats["active_bytes"] is None
    assert any("cudaMallocAsync" in note for note in stats["notes"])
    assert stats["nvml"]["used_bytes"] > 0
