"""Runs a program of tests/allocator_traces.py and keeps snapshots on the way: python job_moments.py IN.json OUT.pickle."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import torch

from tests.pretend_gpu.job_allocator import Job


class ObservedJob(Job):
    """A job whose checks keep the segments, by how many events the trace has then."""

    def __init__(self, streams: int, pools: list[dict[str, bool]]) -> None:
        super().__init__(streams, pools)
        self.states: dict[int, list[dict[str, Any]]] = {}

    def check(self) -> None:
        found = torch.cuda.memory._snapshot()
        self.states[len(found["device_traces"][0])] = found["segments"]


def main(program_path: str, answer_path: str) -> None:
    asked = json.loads(Path(program_path).read_text())
    job = ObservedJob(asked["streams"], asked["pools"])
    for operation in asked["program"]:
        job.do(*operation)
    answer = {"content": torch.cuda.memory._snapshot(), "states": job.states}
    Path(answer_path).write_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
