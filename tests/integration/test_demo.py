"""The demo's job as real processes, seen through a real collector."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.client import Client
from tests.collector_peers import collecting
from tests.integration.commands import VRAMSCOPE, Command, running, short_folder
from tests.waiting import wait_for
from vramscope.columns import from_frame

DEMO = (*VRAMSCOPE, "demo", "--no-serve", "--small")
# Four processes import torch on a machine that may have two cores.
START_S = 90.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found, collecting(found / "run", found / "state"):
        yield found


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    found = Client(folder / "run")
    yield found
    found.close()


def job_of(client: Client, *, ranks: int) -> dict[str, Any]:
    """Wait for the job with so many ranks, each of which has told its device, and return it."""

    def look() -> dict[str, Any] | None:
        jobs = client.call("jobs").header["result"]["jobs"]
        return next((job for job in jobs if sum(bool(rank["devices"]) for rank in job["ranks"]) == ranks), None)

    return wait_for(look, f"a job of {ranks} ranks", within_s=START_S)


def test_four_ranks_are_one_simulated_job_with_a_gpu_each(folder: Path, client: Client) -> None:
    # GIVEN a demo of four ranks
    with running([*DEMO, "--ranks", "4"], folder=folder) as demo:
        job = job_of(client, ranks=4)
        # THEN they are one job, each rank with a card of its own, called simulated
        assert (job["name"], job["world_size"], job["simulated"]) == ("demo-training", 4, True)
        devices = [rank["devices"][0] for rank in job["ranks"]]
        assert [device["device"] for device in devices] == [0, 1, 2, 3]
        assert len({device["uuid"] for device in devices}) == 4
        assert {device["backend"] for device in devices} == {"simulated"}
        # THEN each has counters and a map that the page can draw, with the parameters named
        for rank in range(4):
            place = {"job_id": job["id"], "rank": rank, "device": rank, "max_age_us": 0}
            found = wait_for(lambda place=place: from_frame(client.call("map", place)), f"a map of rank {rank}")
            assert "layers.1.attn.qkv.weight" in {name for name, _, _ in found.tensor_labels}
            stats = client.call("stats", place).header["result"]
            assert stats["counters"]["reserved_bytes"] > 0
        # WHEN it is asked to end
        status = demo.end()
    # THEN all ranks say so in one line each, and nothing went wrong
    assert status == 0
    assert sorted(line for line in demo.output.splitlines() if "stopped" in line) == [
        f"rank {rank}: stopped" for rank in range(4)
    ]
    assert demo.errors == ""
    wait_for(lambda: all(rank["ended_unix_us"] for rank in job_of(client, ranks=4)["ranks"]), "the job's end")


def test_the_demo_answers_for_a_stack_and_writes_a_snapshot(folder: Path, client: Client) -> None:
    with running([*DEMO, "--alloc-conf", "expandable_segments:True"], folder=folder):
        job = job_of(client, ranks=1)
        assert job["ranks"][0]["alloc_conf"] == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        place = {"job_id": job["id"], "rank": 0, "device": 0}
        found = wait_for(lambda: from_frame(client.call("map", {**place, "max_age_us": 0})), "a map")
        assert found.segment_is_expandable.all()
        # WHEN the stack of a parameter is asked for THEN it leads to the model's code
        names = [name for name, _, _ in found.tensor_labels]
        address = int(found.tensor_address[names.index("layers.0.mlp.up.weight")])
        frames = client.call("stack", {**place, "address": address}).header["result"]["frames"]
        assert frames[0][0].endswith("vramscope/demo/model.py")
        # WHEN a snapshot is asked for THEN it is a pickle in PyTorch's form
        dump = client.call("dump", {"job_id": job["id"], "rank": 0}, timeout_s=30).header["result"]
        snapshot = pickle.loads(Path(dump["path"]).read_bytes())
        assert snapshot["segments"]
        assert snapshot["device_traces"][0]


def test_steps_end_the_demo_by_itself(folder: Path) -> None:
    with running([*DEMO, "--steps", "2"], folder=folder) as demo:
        assert demo.process.wait(START_S) == 0
    assert demo.errors == ""


def test_the_leak_runs_out_of_memory_says_so_and_ends(folder: Path, client: Client) -> None:
    with running([*DEMO, "--scenario", "leak", "--capacity", "256MiB"], folder=folder) as demo:
        assert demo.process.wait(START_S) == 0
        job = job_of(client, ranks=1)
    assert "CUDA out of memory. Tried to allocate" in demo.output
    # THEN the collector has what memory looked like then
    stats = client.call("stats", {"job_id": job["id"], "rank": 0, "device": 0}).header["result"]
    assert stats["counters"]["num_ooms"] == 1
    assert stats["counters"]["allocated_bytes"] > 128 << 20


def test_a_torch_that_cannot_be_imported_is_one_line_for_all_ranks(folder: Path) -> None:
    # GIVEN a torch of which a library is missing
    (folder / "site" / "torch").mkdir(parents=True)
    (folder / "site" / "torch" / "__init__.py").write_text("raise OSError('libtorch_cpu.so: cannot open')")
    # WHEN two ranks are to train with it
    demo = Command([*DEMO, "--ranks", "2"], folder=folder, environ={"PYTHONPATH": str(folder / "site")})
    # THEN one line says so, and how to see why
    assert demo.process.wait(START_S) == 1
    assert demo.errors.count("\n") == 1
    assert "cannot be imported; to see why, run: " in demo.errors


def test_ctrl_c_ends_all_ranks_without_a_traceback(folder: Path) -> None:
    # GIVEN a demo in a process group of its own, as a terminal starts it
    demo = Command(["setsid", *DEMO, "--ranks", "2"], folder=folder)
    for rank in range(2):
        demo.line(f"rank {rank}: trains")
    # WHEN the whole group gets SIGINT
    os.killpg(demo.process.pid, signal.SIGINT)
    # THEN it ends well
    assert demo.process.wait(START_S) == 0
    assert "Traceback" not in demo.output + demo.errors


def test_the_ranks_end_when_their_parent_is_killed(folder: Path, client: Client) -> None:
    with running(DEMO, folder=folder) as demo:
        pid = job_of(client, ranks=1)["ranks"][0]["pid"]
        demo.end(signal.SIGKILL)
        wait_for(lambda: not _runs(pid), "the end of the rank")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process without a parent that reads its status stays as a zombie in some containers.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
