"""Jobs on a simulated GPU whose files are asked what would fit, and replayed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from tests.unit.compare.jobs import traced
from vramscope.allocator import Allocator, OutOfMemory
from vramscope.compare.side import Side, side_of
from vramscope.units import MIB


def refused(allocator: Allocator, size_bytes: int) -> None:
    """Ask for more than there is."""
    try:
        allocator.malloc(size_bytes)
    except OutOfMemory:
        return
    raise AssertionError("it was served")


def fragmented(capacity_bytes: int = 200 * MIB, **options: Any) -> Allocator:
    """Return an allocator with 60 MiB of a segment of 100 MiB free in three holes, and a request of 120 MiB that failed."""
    allocator = Allocator(capacity_bytes, **options)
    allocator.free(allocator.malloc(100 * MIB))
    addresses = [allocator.malloc(20 * MIB) for _ in range(5)]
    for address in addresses[::2]:
        allocator.free(address)
    refused(allocator, 120 * MIB)
    return allocator


def side(allocator: Allocator, *, at: str = "end") -> Side:
    """Return the moment ``at`` of the file that the allocator's job would leave."""
    return side_of(traced(allocator.snapshot()), name="job.pickle", at=at)


def written(allocator: Allocator, path: Path) -> Path:
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    return path
