"""What the pure core costs: the simulated allocator's events among many blocks, and the figures and owners of a large map.

Run: python benchmarks/pure_core.py [--runs 5] [--blocks 57000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fake_live_data import make_map
from vramscope.allocator import Allocator
from vramscope.metrics import summarize
from vramscope.owners import assign, top_tensors
from vramscope.units import GIB

# A step of the demo's GPT: so many allocations and frees.
STEP_EVENTS = 3100
SIZES_BYTES = (600, 5000, 40_000, 300_000, 900_000, 3_000_000, 12_000_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="measures of each (%(default)s)")
    parser.add_argument("--blocks", type=int, default=57_000, help="blocks of the map (%(default)s)")
    arguments = parser.parse_args()
    found = make_map(arguments.blocks)
    owners = assign(found)
    allocator, live = filled(arguments.blocks)
    print(f"{found.block_count} blocks in the map, {len(live)} live in the allocator")
    print(f"{'what':<40}{'median ms':>10}{'least':>8}{'most':>8}")
    for name, work in (
        ("figures of the map, largest fit included", lambda: summarize(found, device_free_bytes=GIB, expandable=False)),
        ("owners of its blocks", lambda: assign(found)),
        ("its 200 largest tensors", lambda: top_tensors(found, owners, 200)),
        (f"{STEP_EVENTS} events of the allocator", lambda: step(allocator, live)),
        ("its segments in PyTorch's form", allocator.segments),
    ):
        report(name, [measured_ms(work) for _ in range(arguments.runs)])
    return 0


def filled(blocks: int) -> tuple[Allocator, list[int]]:
    """Return an allocator with ``blocks`` live allocations of mixed sizes, and their addresses."""
    random.seed(0)
    allocator = Allocator(400 * GIB)
    return allocator, [allocator.malloc(random.choice(SIZES_BYTES)) for _ in range(blocks)]


def step(allocator: Allocator, live: list[int]) -> None:
    """Free and allocate in turn, at random places, STEP_EVENTS events in all."""
    for _ in range(STEP_EVENTS // 2):
        place = random.randrange(len(live))
        allocator.free(live[place])
        live[place] = allocator.malloc(random.choice(SIZES_BYTES))


def measured_ms(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1000


def report(name: str, times_ms: list[float]) -> None:
    print(f"{name:<40}{statistics.median(times_ms):>10.1f}{min(times_ms):>8.1f}{max(times_ms):>8.1f}")


if __name__ == "__main__":
    sys.exit(main())
