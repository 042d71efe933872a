"""A real training job, a collector and a dashboard as three processes: the API says what torch and NVML say, to the byte."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.gateway import Gateway
from tests.pretend_gpu.comparison import check_device, check_map, comparable, device_path, id_of, settled_stats
from tests.pretend_gpu.conftest import Pretend
from tests.pretend_gpu.processes import Api, Job, Machine
from tests.waiting import wait_for
from vramscope.units import GIB

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def machine(pretend: Pretend) -> Iterator[Machine]:
    """A machine with two GPUs of different size, 1 GiB of each held by others."""
    made = Machine(pretend, devices=(8 * GIB, 3 * GIB), other_bytes=GIB)
    yield made
    made.stop()


def gateway_of(machine: Machine) -> Gateway:
    """Return the dashboard's own way to the collector, for what the API does not tell."""
    return Gateway(machine.folder / "run", machine.folder / "state")


def start(machine: Machine, *arguments: str, alloc_conf: str = "") -> tuple[Job, Api]:
    job = machine.start_job(*arguments, extra={"PYTORCH_ALLOC_CONF": alloc_conf} if alloc_conf else None)
    machine.start_collector()
    return job, machine.start_server()


@pytest.mark.parametrize("alloc_conf", ["", "expandable_segments:True"])
@pytest.mark.parametrize("devices", [(0,), (0, 1)])
def test_every_figure_is_torchs_own(machine: Machine, devices: tuple[int, ...], alloc_conf: str) -> None:
    # GIVEN a transformer that trains with AdamW, a collector and a dashboard
    job, api = start(machine, "--devices", *map(str, devices), alloc_conf=alloc_conf)

    # WHEN it has trained, left holes, used a second stream with frees that are pending, and given its cache back
    job.do("train 3")
    for command in ("fragment", "streams", "empty_cache"):
        job.do(command)

        # THEN every route of the API agrees with torch's statistics, its snapshot and NVML at that moment
        for device in devices:
            check_device(api, job, device)


def test_a_job_is_described_as_it_is(machine: Machine) -> None:
    # GIVEN a job on the second GPU, with settings of the allocator
    job, api = start(machine, "--devices", "1", alloc_conf="max_split_size_mb:200")

    # WHEN the API is asked for jobs
    job.do("train 1")
    found = wait_for(lambda: api.job_of(job.truth["pid"]), "the job in /jobs")

    # THEN it names the process, its torch, its settings and its GPU as NVML does
    rank = found["ranks"][0]
    nvml = job.truth["devices"]["1"]["nvml"]
    assert (found["name"], found["simulated"], found["ended"], found["world_size"]) == ("end-to-end", False, False, 1)
    assert rank["torch_version"] == job.truth["torch_version"]
    assert rank["alloc_conf"] == {"PYTORCH_ALLOC_CONF": "max_split_size_mb:200"}
    assert rank["map_way"] == "history-free"
    described = next(device for device in rank["devices"] if device["device"] == 1)
    assert (described["uuid"], described["name"]) == (nvml["uuid"], nvml["name"])
    assert (described["total_bytes"], described["backend"]) == (nvml["total_bytes"], "native")


def test_activations_are_what_came_after_the_last_step(machine: Machine) -> None:
    # GIVEN a job of which the end of a step has been seen (a map at each would cost too much)
    job, api = start(machine)
    gateway = gateway_of(machine)
    job_id = id_of(api, job)

    def boundary_seen() -> bool:
        job.do("train 1")
        found = gateway.device_map(job_id, 0)
        return found is not None and found.boundary_address is not None

    wait_for(boundary_seen, "a map of a step's end")
    before = job.truth

    # WHEN it keeps the activations of a forward pass
    after = job.do("forward")

    # THEN the blocks that came with it are activations, and no parameter is
    settled_stats(api, job, 0)
    found = api.get(f"{device_path(api, job, 0)}/owners?limit=100000&max_age_ms=0")
    came = active_addresses(after) - active_addresses(before)
    activations = {row["address"] for row in found["owners"] if row["category"] == "activation"}
    assert len(came) > 20
    assert came <= activations
    assert not activations & {tensor["address"] for tensor in after["tensors"]}


def active_addresses(truth: dict[str, Any]) -> set[int]:
    blocks = [block for segment in truth["segments"] for block in segment["blocks"]]
    return {block["address"] for block in blocks if block["state"] != "inactive"}


def test_what_is_called_releasable_is_what_empty_cache_gives_back(machine: Machine) -> None:
    # GIVEN a job with holes, whole free segments, pending frees and a private pool
    job, api = start(machine)
    for command in ("train 2", "fragment", "streams", "graph_pool"):
        before = job.do(command)
    promised = settled_stats(api, job, 0)["releasable_bytes"]

    # WHEN it empties its cache
    after = job.do("empty_cache")

    # THEN as much came back as was promised
    reserved = [truth["devices"]["0"]["stats"]["reserved_bytes.all.current"] for truth in (before, after)]
    assert promised == reserved[0] - reserved[1] > 0


@pytest.mark.parametrize("left_mib", [4, 200])
def test_what_is_said_to_fit_fits_and_one_byte_more_does_not(machine: Machine, left_mib: int) -> None:
    # GIVEN two jobs, one after the other, that leave the same holes and as much of the driver's memory
    def start_one() -> Job:
        job = machine.start_job()
        for command in ("train 2", "fragment", f"fill {left_mib}"):
            job.do(command)
        return job

    first = start_one()
    machine.start_collector()
    api = machine.start_server()
    fit_bytes = settled_stats(api, first, 0)["largest_fit_bytes"]

    # WHEN the first asks for what is said to fit, and the second for one byte more
    fitted = first.do(f"request {fit_bytes}")["fitted"]
    first.process.communicate(timeout=60)
    second = start_one()
    assert settled_stats(api, second, 0)["largest_fit_bytes"] == fit_bytes
    one_more_fitted = second.do(f"request {fit_bytes + 1}")["fitted"]

    # THEN only the first gets it
    assert (fitted, one_more_fitted) == (True, False)


def test_a_dump_is_the_jobs_own_snapshot(machine: Machine) -> None:
    # GIVEN a job that records history
    job, api = start(machine)
    job.do("history")
    job.do("train 2")

    # WHEN a dump is asked for and downloaded
    described = api.get(f"/jobs/{id_of(api, job)}/dump", method="POST")
    content = api.fetch("/" + described["download"])

    # THEN it is the snapshot that torch itself writes: these segments, and the trace
    snapshot = pickle.loads(content)
    assert len(content) == described["file_bytes"] == Path(described["path"]).stat().st_size
    assert comparable(snapshot["segments"], 0) == comparable(job.truth["segments"], 0)
    assert any(entry["action"] == "alloc" for entry in snapshot["device_traces"][0])


def test_a_block_has_its_stack_only_where_history_is_on(machine: Machine) -> None:
    # GIVEN a job whose parameters were made without history, and whose activations are made with it
    job, api = start(machine)
    before = job.do("train 1")
    job.do("history")
    after = job.do("forward")
    old = before["tensors"][0]["address"]
    new = min(active_addresses(after) - active_addresses(before))

    # WHEN the stack of either block is asked for
    gateway = gateway_of(machine)
    with_stack = gateway.stack(id_of(api, job), 0, None, new)
    without = gateway.stack(id_of(api, job), 0, None, old)

    # THEN one shows where the job allocated it, and the other says why there is none
    assert any(name == "forward" and "job_training.py" in filename for filename, _, name in with_stack.frames)
    assert not without.frames
    assert without.reason


def test_an_out_of_memory_error_leaves_its_mark(machine: Machine) -> None:
    # GIVEN a job that trains
    job, api = start(machine)
    job.do("train 1")
    settled_stats(api, job, 0)

    # WHEN a request does not fit, the job goes on, and the user marks an epoch
    job.do("oom")
    job.do("mark")
    job.do("train 1")

    # THEN the OOM and the retry are counted and marked, and so is the epoch
    stats = settled_stats(api, job, 0)
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 1)
    marks = api.get(f"{device_path(api, job, 0)}/timeline")["marks"]
    assert {"oom", "retry", "step"} <= {mark["kind"] for mark in marks}
    assert [mark["label"] for mark in marks if mark["kind"] == "user"] == ["epoch 3"]
    check_map(api, job, 0)
