"""What a collector costs under 32 ranks that send counters at 10 Hz, 2.5 step marks/s and a map every 2 s: its share of one core.

Run: python benchmarks/collector_load.py [--seconds 20] [--ranks 32] [--runs 3] [--blocks 2000]
The peers run in this process; the collector's share is its own CPU time from /proc/PID/stat, a viewer asking for figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from collectors.gateway import Gateway
from tests.collector_peers import ScriptedAgent, collecting, counters, hello, map_frame, now_us

LIMIT_RATIO = 0.25
COUNTERS_HZ = 10
MAP_INTERVAL_S = 2.0
STEP_MARK_EVERY = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each run measures (%(default)s)")
    parser.add_argument("--ranks", type=int, default=32, help="simulated ranks (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs, each with a new collector (%(default)s)")
    parser.add_argument("--blocks", type=int, default=2000, help="blocks in each map (%(default)s)")
    options = parser.parse_args()
    ratios = [measure(options.ranks, options.seconds, options.blocks) for _ in range(options.runs)]
    median = statistics.median(ratios)
    print(f"{options.ranks} ranks x {COUNTERS_HZ} Hz, maps of {options.blocks} blocks every {MAP_INTERVAL_S:g} s")
    print(f"{'share of one core':<24}{'median':>9}{'least':>9}{'most':>9}{'limit':>9}")
    print(f"{'collector':<24}{median:>8.1%} {min(ratios):>8.1%} {max(ratios):>8.1%} {LIMIT_RATIO:>8.0%}")
    return 0 if median <= LIMIT_RATIO else 1


def measure(ranks: int, seconds: float, blocks: int) -> float:
    """Return the collector's CPU time over wall time, after two seconds in which everyone connects."""
    with tempfile.TemporaryDirectory(prefix="vs") as folder:
        runtime, state = Path(folder, "r"), Path(folder, "s")
        with collecting(runtime, state) as collector:
            agents = [ScriptedAgent(runtime, hello(rank, world_size=ranks)) for rank in range(ranks)]
            stop = threading.Event()
            sender = threading.Thread(target=send, args=(agents, blocks, stop))
            sender.start()
            try:
                time.sleep(2.0)
                used_s, since_s = cpu_seconds(collector.process.pid), time.monotonic()
                watch(Gateway(runtime, state), since_s + seconds)
                ratio = (cpu_seconds(collector.process.pid) - used_s) / (time.monotonic() - since_s)
            finally:
                stop.set()
                sender.join()
                for agent in agents:
                    agent.close()
    return ratio


def send(agents: list[ScriptedAgent], blocks: int, stop: threading.Event) -> None:
    """Send each rank's counters in turn, evenly spread over the tenth of a second, and its maps."""
    pause_s = 1 / (COUNTERS_HZ * len(agents))
    maps_every = int(MAP_INTERVAL_S * COUNTERS_HZ)
    round_number = 0
    while not stop.is_set():
        began_s = time.monotonic()
        for number, agent in enumerate(agents):
            agent.send(counters(now_us(), active_bytes=(100 + round_number % 50) << 20, step=round_number))
            if (round_number + number) % STEP_MARK_EVERY == 0:
                agent.send(
                    {
                        "kind": "mark",
                        "time_unix_us": now_us(),
                        "mark": "step",
                        "label": str(round_number),
                        "device": None,
                    }
                )
            if (round_number + number) % maps_every == 0:
                agent.send(map_frame(now_us(), blocks=blocks, at="step_end"))
            time.sleep(max(0.0, began_s + (number + 1) * pause_s - time.monotonic()))
        round_number += 1


def watch(gateway: Gateway, until_s: float) -> None:
    """Ask for figures once a second, as one open page does."""
    while (left_s := until_s - time.monotonic()) > 0:
        for job in gateway.jobs():
            gateway.stats(job.id, 0)
        time.sleep(min(1.0, left_s))
    gateway.close()


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process, from proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
