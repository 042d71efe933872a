"""Attaches the agent to a small training job and compares everything that it sends with what torch itself says.

Runs under any release of torch from 2.1 on, on the pretend GPU or a real one; needs only torch, nvidia-ml-py and this checkout
on PYTHONPATH. Prints one line, "OK …", or ends with the traceback of what did not agree.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pynvml
import torch

import vramscope
from tests.fake_collector import FakeCollector
from tests.waiting import wait_for
from vramscope.agent import wire
from vramscope.agent.categories import CODE
from vramscope.agent.vocabulary import COUNTERS, STATE_CODE

STEPS = 5
# The driver's free memory is asked once a second.
SETTLED_S = 1.5


class Job:
    """Two layers, on two devices where there are two, an optimizer, and blocks of a side stream."""

    def __init__(self) -> None:
        self.devices = list(range(min(2, torch.cuda.device_count())))
        self.model = torch.nn.ModuleList(torch.nn.Linear(512, 512, device=f"cuda:{n}") for n in self.devices)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.kept: list[Any] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        x = torch.ones(32, 512, device="cuda:0")
        for number, layer in zip(self.devices, self.model, strict=True):
            x = layer(x.to(f"cuda:{number}"))
        x.sum().backward()
        self.optimizer.step()

    def fragment(self) -> None:
        """Leave holes in both pools, on two streams."""
        for number in self.devices:
            blocks = [
                torch.empty(1000 * size, dtype=torch.uint8, device=f"cuda:{number}") for size in range(1, 3000, 97)
            ]
            with torch.cuda.stream(torch.cuda.Stream(number)):
                blocks += [torch.empty(size, dtype=torch.uint8, device=f"cuda:{number}") for size in (5000, 1 << 22)]
            self.kept += blocks[::2] + blocks[-2:]


def check_announcement(collector: FakeCollector, job: Job) -> None:
    hello = collector.wait("hello")[0].header
    free_of_history = "include_traces" in inspect.signature(torch.cuda.memory.memory_snapshot).parameters
    assert hello["job"]["torch_version"] == torch.__version__
    assert hello["job"]["map_way"] == ("history-free" if free_of_history else "full snapshot")
    notes = collector.wait("notes", where=lambda header: len(header["devices"]) == len(job.devices))[-1].header
    assert bool(notes["notes"]) is not free_of_history, notes["notes"]
    pynvml.nvmlInit()
    for described in notes["devices"]:
        # Without CUDA_VISIBLE_DEVICES both count alike.
        assert described["uuid"] == pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(described["device"]))
        assert described["total_bytes"] == torch.cuda.get_device_properties(described["device"]).total_memory
        assert described["backend"] == "native"


def check_counters(collector: FakeCollector, job: Job) -> None:
    after_us = (time.time() + SETTLED_S) * 1e6
    frame = collector.wait("counters", where=lambda header: header["time_unix_us"] > after_us)[-1]
    rows = {row["device"]: row for row in frame.header["devices"]}
    assert sorted(rows) == job.devices
    for device, row in rows.items():
        stats = torch.cuda.memory_stats(device)
        expected = {name: stats[".".join(path)] for name, path in COUNTERS.items() if path}
        expected["device_free_bytes"], expected["device_total_bytes"] = torch.cuda.mem_get_info(device)
        assert {name: row[name] for name in expected} == expected, device
    assert frame.header["step"] == STEPS


def check_map(collector: FakeCollector, device: int) -> dict[str, Any]:
    """Compare a map that is asked for with the snapshot, and return its columns."""
    collector.request(100 + device, "map", device=device)
    found = wire.columns(collector.answer_to(100 + device))
    segments = sorted(
        (s for s in torch.cuda.memory_snapshot() if s["device"] == device), key=lambda segment: segment["address"]
    )
    blocks = [block for segment in segments for block in segment["blocks"]]
    expected: dict[str, list[int]] = {
        "segment_address": [s["address"] for s in segments],
        "segment_total_bytes": [s["total_size"] for s in segments],
        "segment_stream": [s["stream"] for s in segments],
        "segment_pool_a": [s["segment_pool_id"][0] for s in segments],
        "segment_pool_b": [s["segment_pool_id"][1] for s in segments],
        "segment_is_small": [s["segment_type"] == "small" for s in segments],
        "segment_is_expandable": [s["is_expandable"] for s in segments],
        "block_address": [b["address"] for b in blocks],
        "block_bytes": [b["size"] for b in blocks],
        "block_requested_bytes": [b["requested_size"] for b in blocks],
        "block_state": [STATE_CODE[b["state"]] for b in blocks],
    }
    assert {name: found[name].tolist() for name in expected} == expected
    counts = [end - begin for begin, end in pairwise(found["segment_first_block"])]
    assert counts == [len(segment["blocks"]) for segment in segments]
    assert len(blocks) > 10
    assert len(set(expected["segment_stream"])) == 2
    return found


def check_tensors(found: dict[str, Any], job: Job, device: int) -> None:
    labels = json.loads(found["tensor_labels"].tobytes())
    sent = sorted(zip(found["tensor_category"], (label[0] for label in labels), found["tensor_address"], strict=True))
    expected = []
    for name, parameter in job.model.named_parameters():
        owned = [("parameter", name, parameter), ("gradient", name, parameter.grad)]
        owned += [
            ("optimizer state", f"{key} of {name}", value) for key, value in job.optimizer.state[parameter].items()
        ]
        expected += [
            (CODE[category], label, tensor.untyped_storage().data_ptr())
            for category, label, tensor in owned
            if tensor.is_cuda and tensor.get_device() == device
        ]
    assert sent == sorted(expected)


def check_stack_and_dump(collector: FakeCollector, job: Job, folder: Path) -> None:
    # Without history there is no stack, and the reason is told.
    collector.request(1, "stack", device=0, address=job.kept[0].untyped_storage().data_ptr())
    assert "history recording is off" in collector.answer_to(1).header["reason"]
    # With it, the newest block's stack leads here.
    torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
    job.kept.append(torch.empty(1 << 20, device="cuda:0"))
    collector.request(2, "stack", device=0, address=job.kept[-1].untyped_storage().data_ptr())
    reply = collector.answer_to(2).header
    assert any(frame[0] == __file__ and frame[2] == "check_stack_and_dump" for frame in reply["frames"]), reply
    torch.cuda.memory._record_memory_history(None)
    path = folder / "dump.pickle"
    collector.request(3, "dump", path=str(path))
    assert collector.answer_to(3).header["file_bytes"] == path.stat().st_size
    assert pickle.loads(path.read_bytes())["segments"]


def check_marks(collector: FakeCollector) -> None:
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda:0")
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("32 TiB fitted")
    for kind in ("retry", "oom", "step"):
        collector.wait("mark", where=lambda header, kind=kind: header["mark"] == kind)


def check_all(collector: FakeCollector, folder: Path) -> str:
    job = Job()
    agent = vramscope.attach(job.model, job.optimizer, name="check")
    assert wait_for(lambda: agent.connected, "the collector's welcome")
    for _ in range(STEPS):
        job.step()
    job.fragment()
    assert agent.step == STEPS
    check_announcement(collector, job)
    check_counters(collector, job)
    for device in job.devices:
        check_tensors(check_map(collector, device), job, device)
    check_stack_and_dump(collector, job, folder)
    check_marks(collector)
    cost = collector.of_kind("counters")[-1].header["agent"]
    vramscope.detach()
    assert collector.wait("bye")[0].header["reason"] == "detached"
    assert cost["failures"] == 0
    assert collector.errors == []
    hello = collector.of_kind("hello")[0].header["job"]
    return (
        f"torch {torch.__version__}, {len(job.devices)} devices: counters, maps ({hello['map_way']}), names, stacks, dump and "
        f"marks agree with torch; longest pause {cost['longest_pause_us'] / 1000:.1f} ms"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as name:
        os.environ["VRAMSCOPE_RUNTIME_DIR"] = name
        with FakeCollector(Path(name) / "collector.sock", counters_hz=10.0) as collector:
            print(f"OK {check_all(collector, Path(name))}")


if __name__ == "__main__":
    main()
