"""How long a day of 10 Hz history of 8 GPUs takes to open: Gateway.timeline, cold (new connections) and warm.

Run: python benchmarks/history_open.py [--seconds 86400] [--devices 8] [--runs 9] [--points 2000]
The history is written by the collector's own store, a minute at a time, so that rollups and pruning are the real ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from collectors.changes import Changes, SeriesKey
from collectors.gateway import Gateway
from collectors.rollup import METRIC_COUNT, Points
from collectors.settings import store_path
from collectors.store import Store
from vramscope.records import Mark
from vramscope.units import GIB, MIB

LIMIT_MS = 300.0
COUNTERS_HZ = 10
CHUNK_S = 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=86_400, help="length of the history (%(default)s)")
    parser.add_argument("--devices", type=int, default=8, help="GPUs, one rank each (%(default)s)")
    parser.add_argument("--runs", type=int, default=9, help="times each view is opened (%(default)s)")
    parser.add_argument("--points", type=int, default=2000, help="points asked for, about the pixels (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vs") as folder:
        state = Path(folder)
        began_s = time.monotonic()
        build(store_path(state), options.seconds, options.devices)
        size_mib = store_path(state).stat().st_size / MIB
        built_s = time.monotonic() - began_s
        print(
            f"{options.seconds} s of {options.devices} GPUs at {COUNTERS_HZ} Hz: {size_mib:.0f} MiB, built in {built_s:.0f} s"
        )
        print(f"{'view':<30}{'points':>8}{'median ms':>11}{'least':>8}{'most':>8}{'limit':>8}")
        worst_ms = max(
            report(view, state, devices, last_s, cold, options)
            for view, devices, last_s in (
                ("all, one GPU", 1, None),
                (f"all, {options.devices} GPUs", options.devices, None),
                ("last hour, one GPU", 1, 3600),
                ("last ten minutes, one GPU", 1, 600),
            )
            for cold in (True, False)
        )
    return 0 if worst_ms <= LIMIT_MS else 1


def build(path: Path, seconds: int, devices: int) -> None:
    """Write the history that ends now, with a mark every ten minutes."""
    store = Store(path, cap_bytes=GIB)
    random = np.random.default_rng(0)
    start_us = time.time_ns() // 1000 - seconds * 1_000_000
    for chunk_s in range(0, seconds, CHUNK_S):
        now_us = start_us + (chunk_s + CHUNK_S) * 1_000_000
        time_us = start_us + chunk_s * 1_000_000 + np.arange(CHUNK_S * COUNTERS_HZ) * (1_000_000 // COUNTERS_HZ)
        changes = Changes(jobs={"day": ("day", "run", devices, False)})
        for rank in range(devices):
            key = SeriesKey("day", rank, 0)
            values = (40 + 20 * random.random((len(time_us), METRIC_COUNT))) * GIB
            changes.stats[key] = (int(time_us[-1]), {})
            changes.samples[key] = Points(time_us, values, values)
            if chunk_s % 600 == 0:
                changes.marks.append(("day", Mark(now_us, rank, "user", f"second {chunk_s}"), True))
        store.flush(changes, now_us)
    store.close()


def report(view: str, state: Path, devices: int, last_s: int | None, cold: bool, options: argparse.Namespace) -> float:
    """Time one view several times, print its line, and return the median in ms."""
    gateway = Gateway(state, state)
    from_us = None if last_s is None else time.time_ns() // 1000 - last_s * 1_000_000
    times_ms, points = [], 0
    for run in range(options.runs + 1):
        if cold:
            forget_pages(store_path(state))
            gateway = Gateway(state, state)
        began_s = time.perf_counter()
        found = [
            gateway.timeline("day", 0, rank, from_unix_us=from_us, to_unix_us=None, points=options.points)
            for rank in range(devices)
        ]
        # The first run of a warm view is the one that warms it.
        if run:
            times_ms.append((time.perf_counter() - began_s) * 1e3)
        points = sum(len(one.time_unix_us) for one in found if one is not None)
    median_ms = statistics.median(times_ms)
    label = f"{view}, {'cold' if cold else 'warm'}"
    print(f"{label:<30}{points:>8}{median_ms:>11.1f}{min(times_ms):>8.1f}{max(times_ms):>8.1f}{LIMIT_MS:>8.0f}")
    return median_ms


def forget_pages(path: Path) -> None:
    """Have the kernel drop the file from its cache, as after a reboot."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
