"""A job that attaches before it uses CUDA, and then uses device 1 only; prints what the agent left untouched as JSON."""

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
            vramscope.attach()
            hello = collector.wait("hello")[0].header
            collector.request(1, "stack", device=0, address=0)
            found = {"note": hello["job"]["notes"], "reason": collector.answer_to(1).header["reason"]}
            found["initialised_by_attach"] = torch.cuda.is_initialized()

            kept = torch.empty(1 << 20, device="cuda:1")
            collector.wait("counters", count=3)
            collector.wait("map")
            notes = collector.wait("notes")[-1].header
            found["devices"] = [described["device"] for described in notes["devices"]]
            found["notes_after"] = notes["notes"]
            found["current_device"] = torch.cuda.current_device()
            found["history"] = torch._C._cuda_isHistoryEnabled()
            found["kept"] = kept.numel()
            vramscope.detach()
            print(json.dumps(found))


if __name__ == "__main__":
    main()
