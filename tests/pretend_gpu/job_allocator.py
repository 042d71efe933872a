"""Runs programs of tests/allocator_traces.py on the real CUDA caching allocator: python job_allocator.py IN.json OUT.json."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.allocator_traces import compact, comparable_events, comparable_stats


class Job:
    """The program's streams, pools and tensors; each method is an operation."""

    def __init__(self, streams: int, pools: int) -> None:
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
        self.streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(streams - 1))]
        self.pools: list[Any] = [torch.cuda.MemPool() for _ in range(pools)]
        self.pool_ids = [list(pool.id) for pool in self.pools]
        self.tensors: dict[int, torch.Tensor] = {}
        self.results: list[int | str] = []
        self.checks: list[dict[str, Any]] = []
        self.diversions: list[Any] = []
        self._busy = ctypes.c_int.in_dll(ctypes.CDLL(None), "fake_gpu_busy")

    def malloc(self, name: int, size: int, stream: int) -> None:
        try:
            with torch.cuda.stream(self.streams[stream]):
                self.tensors[name] = torch.empty(size, dtype=torch.uint8, device="cuda")
            self.results.append(self.tensors[name].data_ptr())
        except torch.OutOfMemoryError as error:
            self.results.append(str(error))

    def free(self, name: int) -> None:
        self.tensors.pop(name, None)

    def record_stream(self, name: int, stream: int) -> None:
        if name in self.tensors:
            self.tensors[name].record_stream(self.streams[stream])

    def busy(self, flag: bool) -> None:
        self._busy.value = int(flag)

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def begin_pool(self, pool: int) -> None:
        self.diversions.append(torch.cuda.use_mem_pool(self.pools[pool]))
        self.diversions[-1].__enter__()

    def end_pool(self) -> None:
        self.diversions.pop().__exit__(None, None, None)

    def drop_pool(self, pool: int) -> None:
        self.pools[pool] = None

    def check(self) -> None:
        segments = compact(torch.cuda.memory.memory_snapshot(include_traces=False))
        self.checks.append({"segments": segments, "stats": comparable_stats(torch._C._cuda_memoryStats(0))})

    def answer(self) -> dict[str, Any]:
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        events = [
            [entry["action"], entry.get("addr", entry.get("device_free")), entry["size"], entry["stream"]]
            for entry in entries
            if entry["action"] != "snapshot"
        ]
        return {
            "torch": torch.__version__,
            "streams": [stream.cuda_stream for stream in self.streams],
            "pools": self.pool_ids,
            "results": self.results,
            "checks": self.checks,
            "events": comparable_events(events),
        }


def main(program_path: str, answer_path: str) -> None:
    asked = json.loads(Path(program_path).read_text())
    job = Job(asked["streams"], asked["pools"])
    for action, *arguments in asked["program"]:
        getattr(job, action)(*arguments)
    Path(answer_path).write_text(json.dumps(job.answer()))


if __name__ == "__main__":
    main(*sys.argv[1:])
