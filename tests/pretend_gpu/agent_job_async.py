"""A job whose allocator is cudaMallocAsync, with the agent attached; prints what the agent sent as JSON lines."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import torch

import vramscope
from tests.fake_collector import FakeCollector


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as name:
        os.environ["VRAMSCOPE_RUNTIME_DIR"] = name
        with FakeCollector(Path(name) / "collector.sock") as collector:
            kept = torch.empty(1 << 20, device="cuda:0")
            vramscope.attach()
            counters = collector.wait("counters", count=3)[-1]
            collector.request(1, "map", device=0)
            for frame in (collector.wait("notes")[0], counters, collector.answer_to(1)):
                print(json.dumps(frame.header))
            print(json.dumps({"kind": "count", "maps": len(collector.of_kind("map")), "kept": kept.numel()}))
            vramscope.detach()


if __name__ == "__main__":
    main()
