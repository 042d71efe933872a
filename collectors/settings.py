"""What a collector is told at its start, and where its files lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CollectorSettings:
    """Folders (both 0700), the intervals that agents are asked to keep, and the cap of the stored history."""

    runtime_folder: Path
    state_folder: Path
    map_interval_us: int = 2_000_000
    counters_hz: float = 10.0
    store_cap_bytes: int = 1 << 30
    nvml: bool = True


def store_path(state_folder: Path) -> Path:
    """Return the file of the stored history (SQLite, with its -wal and -shm beside it)."""
    return state_folder / "history.sqlite"


def dumps_folder(state_folder: Path) -> Path:
    """Return the folder of the snapshots that jobs wrote on request."""
    return state_folder / "dumps"


def log_path(state_folder: Path) -> Path:
    """Return the file that a collector started by the dashboard writes its lines to."""
    return state_folder / "collector.log"
