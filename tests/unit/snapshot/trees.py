"""Builds PyTorch's snapshots as plain objects from a few words, and opens them as a user would."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from tests.segments import BASE, segment
from vramscope.snapshot.columns import Snapshot
from vramscope.trace.opening import open_traced
from vramscope.units import MIB

NO_DIVISIONS = {str(1 << bucket): 0 for bucket in range(16)}


def frame(name: str, line: int = 1, filename: str = "train.py") -> dict[str, Any]:
    return {"filename": filename, "line": line, "name": name}


def event(action: str, at: int = 0, size: int = 0, **more: Any) -> dict[str, Any]:
    """Return a trace entry at BASE + ``at``, as torch 2.3 writes it."""
    return {"action": action, "addr": BASE + at, "size": size, "stream": 0, "time_us": 1_000_000, "frames": []} | more


def oom(size: int, device_free: int, **more: Any) -> dict[str, Any]:
    entry = event("oom", size=size, device_free=device_free) | more
    del entry["addr"]
    return entry


def tree(*segments: dict[str, Any], traces: list[list[dict[str, Any]]] | None = None, **more: Any) -> dict[str, Any]:
    """Return a snapshot as torch 2.6 has it."""
    return {
        "segments": list(segments),
        "device_traces": [[]] if traces is None else traces,
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "expandable_segments": False,
            "roundup_power2_divisions": dict(NO_DIVISIONS),
        },
        "external_annotations": [],
    } | more


def small_tree() -> dict[str, Any]:
    """Return a 2 MiB segment with a live block of 1 MiB that its trace allocated, and a stack."""
    made = segment((MIB, "live"), (MIB, "free"), small=True)
    stack = [frame("forward", 7), frame("main", 90)]
    made["blocks"][0]["frames"] = stack
    trace = [
        event("segment_alloc", 0, 2 * MIB, frames=stack),
        event("alloc", 0, MIB - 100, frames=stack),
        event("alloc", MIB, 1000, frames=[frame("backward", 8)]),
        event("free_requested", MIB, 1000),
        event("free_completed", MIB, 1000),
    ]
    return tree(made, traces=[trace])


def write(folder: Path, content: Any, name: str = "snapshot.pickle") -> Path:
    """Write bytes as they are, anything else as a pickle."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


def opened(folder: Path, content: Any) -> Snapshot:
    return open_traced(write(folder, content)).snapshot
