"""Runs programs of tests/allocator_traces.py on the real CUDA caching allocator: python job_allocator.py IN.json OUT.json.

IN is a list of {"program", "alloc_conf", "streams", "pools"}, OUT the answers. Each program runs in a process of its own, forked
when torch is loaded and before it looks for a GPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.allocator_traces import compact, comparable_events, comparable_stats


class Job:
    """The program's streams, pools, graphs and tensors; each method is an operation."""

    def __init__(self, streams: int, pools: list[dict[str, bool]]) -> None:
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
        self.streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(streams))]
        self.pools: list[Any] = [torch.cuda.MemPool(**options) for options in pools]
        self.pool_ids = [list(pool.id) for pool in self.pools]
        self.graphs: list[Any] = []
        self.graph_pools: list[Any] = []
        self.tensors: dict[int, torch.Tensor] = {}
        self.results: list[int | str] = []
        self.checks: list[dict[str, Any]] = []
        self.diversions: list[Any] = []
        self.is_capturing = self.is_aside = False
        self._busy = ctypes.c_int.in_dll(ctypes.CDLL(None), "fake_gpu_busy")

    def do(self, action: str, *arguments: Any) -> None:
        """Do an operation; in a capture its stream is current, as in torch.cuda.graph, unless the program stands aside."""
        with torch.cuda.stream(self.streams[-1 if self.is_capturing and not self.is_aside else 0]):
            getattr(self, action)(*arguments)

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

    def begin_capture(self, graph: int, shared: int | None) -> None:
        assert graph == len(self.graphs)
        self.graphs.append(torch.cuda.CUDAGraph())
        self.graph_pools.append(torch.cuda.graph_pool_handle() if shared is None else self.graph_pools[shared])
        with torch.cuda.stream(self.streams[-1]):
            self.graphs[graph].capture_begin(pool=self.graph_pools[graph], capture_error_mode="relaxed")
        self.is_capturing = True

    def end_capture(self) -> None:
        with torch.cuda.stream(self.streams[-1]):
            self.graphs[-1].capture_end()
        self.is_capturing = False

    def aside(self, flag: bool) -> None:
        self.is_aside = flag

    def drop_graph(self, graph: int) -> None:
        self.graphs[graph] = None

    def check(self) -> None:
        segments = compact(torch.cuda.memory.memory_snapshot(include_traces=False))
        self.checks.append({"segments": segments, "stats": comparable_stats(torch._C._cuda_memoryStats(0))})

    def answer(self) -> dict[str, Any]:
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        events = [
            [
                *(entry["action"], entry.get("addr", entry.get("device_free")), entry["size"], entry["stream"]),
                list(entry.get("pool_id", (0, 0))),
            ]
            for entry in entries
            if entry["action"] != "snapshot"
        ]
        return {
            "torch": torch.__version__,
            "streams": [stream.cuda_stream for stream in self.streams],
            "pools": self.pool_ids,
            "graph_pools": [list(pool) for pool in self.graph_pools],
            "results": self.results,
            "checks": self.checks,
            "events": comparable_events(events),
        }


def run(asked: dict[str, Any], answer_path: Path) -> None:
    torch._C._accelerator_setAllocatorSettings(asked["alloc_conf"])
    job = Job(asked["streams"], asked["pools"])
    for operation in asked["program"]:
        job.do(*operation)
    answer_path.write_text(json.dumps(job.answer()))


def main(asked_path: str, answers_path: str) -> None:
    warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
    answers = []
    for number, asked in enumerate(json.loads(Path(asked_path).read_text())):
        path = Path(f"{answers_path}.{number}")
        child = os.fork()
        if not child:
            run(asked, path)
            # Without the interpreter's own end, which would free every tensor in some order.
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"program {number} with {asked['alloc_conf']!r} ended with {status}")
        answers.append(json.loads(path.read_text()))
        path.unlink()
    Path(answers_path).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
