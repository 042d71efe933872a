"""How long opening a snapshot file takes, the first time and again, a jump to any event, and the reading process's memory.

Run: python benchmarks/snapshot_open.py [FILE …] [--runs 3]
Without a file it makes one of 960,000 events with the simulated allocator (half a minute): 50,000 live blocks, stacks of 12
frames. The first opening is with an empty cache, the second reads the columns that were kept; both end with the columns and the
traces, nothing is drawn. A moment is the segments and blocks after some event. The limits are for a million events.
"""

from __future__ import annotations

import argparse
import pickle
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vramscope.allocator import Allocator
from vramscope.snapshot.cache import CACHE_LIMIT_BYTES, SnapshotCache
from vramscope.trace.columns import DeviceTrace
from vramscope.trace.moment import moment_at
from vramscope.trace.opening import open_traced
from vramscope.units import GIB, format_bytes

FIRST_LIMIT_S, SECOND_LIMIT_S, MOMENT_LIMIT_S, MEMORY_LIMIT_BYTES = 4.0, 0.5, 0.03, 1.2 * GIB
MOMENTS = 20
LIVE, ROUNDS, DEPTH = 50_000, 300_000, 12
SIZES = (600, 5000, 40_000, 300_000, 900_000, 3_000_000, 12_000_000)


class Opening(NamedTuple):
    """One opening: how long it took and what it gave; ``moments_s`` is how long each of some moments took."""

    seconds: float
    events: int
    stacks: int
    moments_s: list[float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--runs", type=int, default=3, help="openings of each kind (%(default)s)")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(options.make)
        return 0
    with tempfile.TemporaryDirectory(prefix="vs-") as name:
        files = options.files
        if not files:
            files = [Path(name, "made.pickle")]
            # In a process of its own: a child's peak memory is counted from its parent's.
            subprocess.run((sys.executable, __file__, "--make", str(files[0])), check=True)
        within = [measure(file, Path(name), options.runs) for file in files]
    return 0 if all(within) else 1


def measure(file: Path, folder: Path, runs: int) -> bool:
    """Print what opening ``file`` takes; return whether that is within the limits."""
    first, second = [], []
    for run in range(runs):
        cache = SnapshotCache(folder / f"{file.name}-{run}", CACHE_LIMIT_BYTES)
        first.append(opening(file, cache))
        second.append(opening(file, cache))
    memory_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    events = first[0].events
    print(f"{file.name}: {format_bytes(file.stat().st_size)}, {events:,} events, {first[0].stacks:,} stacks")
    print(f"{'':<24}{'median':>10}{'least':>10}{'most':>10}{'limit':>10}")
    moments_s = [seconds for one in second for seconds in one.moments_s]
    print_row("first opening", [one.seconds for one in first], FIRST_LIMIT_S)
    print_row("second opening", [one.seconds for one in second], SECOND_LIMIT_S)
    print_row("a moment", moments_s, MOMENT_LIMIT_S)
    print(
        f"{'peak memory, reader':<24}{format_bytes(memory_bytes):>10}{'':>20}{format_bytes(int(MEMORY_LIMIT_BYTES)):>10}"
    )
    return (
        statistics.median(one.seconds for one in first) <= FIRST_LIMIT_S
        and statistics.median(one.seconds for one in second) <= SECOND_LIMIT_S
        and statistics.median(moments_s) <= MOMENT_LIMIT_S
        and memory_bytes <= MEMORY_LIMIT_BYTES
    )


def opening(file: Path, cache: SnapshotCache) -> Opening:
    begin_s = time.perf_counter()
    found = open_traced(file, cache=cache)
    seconds = time.perf_counter() - begin_s
    trace = max(found.traces, key=lambda trace: trace.event_count)
    moments_s = [moment_s(trace, event) for event in random.Random(0).choices(range(trace.event_count), k=MOMENTS)]
    return Opening(seconds, sum(one.event_count for one in found.traces), len(found.snapshot.stacks), moments_s)


def moment_s(trace: DeviceTrace, event: int) -> float:
    begin_s = time.perf_counter()
    moment_at(trace, event)
    return time.perf_counter() - begin_s


def print_row(name: str, seconds: list[float], limit_s: float) -> None:
    cells = [f"{value:.3f} s" for value in (statistics.median(seconds), min(seconds), max(seconds), limit_s)]
    print(f"{name:<24}" + "".join(f"{cell:>10}" for cell in cells))


def make(path: Path) -> None:
    """Write the snapshot of a made-up job: many live blocks of all sizes, one of which is replaced again and again."""
    dice = random.Random(0)
    allocator = Allocator(400 * GIB, trace_max_entries=2_000_000)
    stacks = [
        tuple((f"model_{n % 17}.py", n * 7 + depth, f"layer_{depth}") for depth in range(DEPTH)) for n in range(2000)
    ]
    live: list[int] = []
    for _ in range(LIVE + ROUNDS):
        if len(live) == LIVE:
            place = dice.randrange(LIVE)
            allocator.free(live[place])
            live[place] = live[-1]
            live.pop()
        live.append(allocator.malloc(dice.choice(SIZES), frames=dice.choice(stacks)))
    with path.open("wb") as file:
        pickle.dump(allocator.snapshot(), file)


if __name__ == "__main__":
    sys.exit(main())
