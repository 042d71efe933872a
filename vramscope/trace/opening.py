"""Opens a snapshot file with the trace of each of its devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vramscope.snapshot.cache import SnapshotCache
from vramscope.snapshot.limits import DEFAULT_LIMITS, Limits
from vramscope.snapshot.opening import Progress, open_snapshot
from vramscope.trace.build import trace_of
from vramscope.trace.columns import TracedSnapshot


def open_traced(
    path: Path,
    *,
    cache: SnapshotCache | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    limits: Limits = DEFAULT_LIMITS,
) -> TracedSnapshot:
    """Return the snapshot in ``path`` and its traces; see open_snapshot."""
    snapshot = open_snapshot(path, cache=cache, progress=progress, cancelled=cancelled, limits=limits)
    return TracedSnapshot(snapshot, tuple(trace_of(snapshot, found) for found in snapshot.devices))
