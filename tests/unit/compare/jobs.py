"""Small jobs on the simulated allocator with stacks, as traced snapshots: what two sides are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramscope.allocator import Allocator
from vramscope.snapshot.build import build_snapshot
from vramscope.trace.build import trace_of
from vramscope.trace.columns import TracedSnapshot
from vramscope.units import GIB

Frame = tuple[str, int, str]

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
LOOP: tuple[Frame, ...] = (("/home/ada/train.py", 90, "main"),)
FORWARD: tuple[Frame, ...] = ((f"{TORCH}/nn/functional.py", 5, "linear"), ("/home/ada/model.py", 30, "forward"), *LOOP)
STEP: tuple[Frame, ...] = ((f"{TORCH}/optim/adam.py", 7, "_init_group"), ("/home/ada/train.py", 60, "step"), *LOOP)
ONLY_TORCH: tuple[Frame, ...] = (("/pytorch/aten/src/ATen/native/Fill.cpp", 0, "at::full"),)

# A request of some bytes from a stack; a place among the requests so far frees that one.
Call = tuple[int, Sequence[Frame]] | int


def content_of(*calls: Call, **settings: Any) -> dict[str, Any]:
    """Return what PyTorch would dump after ``calls``."""
    allocator = Allocator(16 * GIB, **settings)
    addresses: list[int] = []
    for call in calls:
        if isinstance(call, int):
            allocator.free(addresses[call])
        else:
            size_bytes, frames = call
            addresses.append(allocator.malloc(size_bytes, frames=tuple(frames)))
    return allocator.snapshot()


def traced(content: dict[str, Any]) -> TracedSnapshot:
    snapshot = build_snapshot(content, container="", file_bytes=GIB, progress=lambda done, total: None)
    return TracedSnapshot(snapshot, tuple(trace_of(snapshot, found) for found in snapshot.devices))


def job(*calls: Call) -> TracedSnapshot:
    return traced(content_of(*calls))
