"""What the agent costs a job with 12,000 blocks on the pretend GPU while somebody looks, and what ``import vramscope`` takes.

Run: python benchmarks/agent_cost.py [--seconds 30] [--runs 3] [--blocks 12000]; make pretend-gpu sets up what it needs.
``--python`` has the CUDA build of torch; the job runs in it, the collector here, which asks for a map four times a second. The
share is the agent's own account (CPU time of its thread, and wall time where the job stood still), beside the
kernel's count of its thread's CPU time. Kernels are skipped on the pretend GPU, so the job's steps are only Python and torch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.fake_collector import FakeCollector
from vramscope.pretend_gpu.environment import environment
from vramscope.units import GIB

ROOT = Path(__file__).resolve().parent.parent
IMPORT_LIMIT_MS = 30.0
BUDGET_RATIO = 0.01
ASK_INTERVAL_S = 0.25
STEPS_PER_S = 20
# The share covers the last ten seconds, so what came before is not looked at.
WARM_UP_S = 12.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", default=ROOT / ".venv-pretend" / "bin" / "python", type=Path, help="has the CUDA build of torch"
    )
    parser.add_argument("--pretend", type=Path, default=ROOT / ".pretend", help="the built pretend GPU (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each run measures (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs, each a new job (%(default)s)")
    parser.add_argument("--blocks", type=int, default=12_000, help="blocks in the job's map (%(default)s)")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.blocks, options.seconds)
        return 0
    runs = [measure(options) for _ in range(options.runs)]
    import_ms = [import_time_ms(options.python) for _ in range(15)]
    print(f"a job with {runs[0]['blocks']} blocks, {STEPS_PER_S} steps/s, a map asked for every {ASK_INTERVAL_S} s")
    print(f"{'':<42}{'median':>10}{'least':>10}{'most':>10}{'limit':>10}")
    print_row("share of wall time, the agent's account", [100 * run["share"] for run in runs], "%", 100 * BUDGET_RATIO)
    print_row("the same, its worst ten seconds", [100 * run["worst_share"] for run in runs], "%")
    print_row("CPU time of the agent's thread (kernel)", [100 * run["thread_share"] for run in runs], "%")
    print_row("cost of a map", [cost for run in runs for cost in run["map_ms"]], "ms")
    print_row("maps a second", [run["maps_per_s"] for run in runs], "")
    print_row("counters a second", [run["counters_per_s"] for run in runs], "")
    print_row("longest pause", [run["longest_pause_ms"] for run in runs], "ms")
    print_row("import vramscope, bare interpreter", import_ms, "ms", IMPORT_LIMIT_MS)
    within = (
        statistics.median(run["share"] for run in runs) <= BUDGET_RATIO
        and statistics.median(import_ms) <= IMPORT_LIMIT_MS
    )
    return 0 if within else 1


def print_row(name: str, values: list[float], unit: str, limit: float | None = None) -> None:
    cells = [f"{value:.2f} {unit}".strip() for value in (statistics.median(values), min(values), max(values))]
    cells.append("" if limit is None else f"{limit:g} {unit}")
    print(f"{name:<42}" + "".join(f"{cell:>10}" for cell in cells))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run one job against a collector here, and return its figures."""
    with tempfile.TemporaryDirectory(prefix="vs-", dir="/tmp") as folder:
        environ = {
            **os.environ,
            **environment(options.pretend, devices=[8 * GIB]),
            "VRAMSCOPE_RUNTIME_DIR": folder,
            "PYTHONPATH": str(ROOT),
        }
        command = [
            str(options.python),
            __file__,
            "--job",
            "--blocks",
            str(options.blocks),
            "--seconds",
            str(options.seconds),
        ]
        with (
            FakeCollector(Path(folder, "collector.sock"), counters_hz=10.0, map_interval_us=2_000_000) as collector,
            subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as job,
        ):
            collector.wait("map")
            request_id = 0
            while job.poll() is None:
                request_id += 1
                with contextlib.suppress(OSError):  # the job has just ended
                    collector.request(request_id, "map", device=0)
                time.sleep(ASK_INTERVAL_S)
            if job.returncode != 0 or job.stdout is None:
                raise SystemExit(f"the job ended with {job.returncode}")
            return figures(collector, json.loads(job.stdout.read()))


def figures(collector: FakeCollector, told: dict[str, Any]) -> dict[str, Any]:
    """Return what the frames of the measured time say, beside what the job told of its agent's thread."""
    begin_us, end_us = told["begin_unix_us"], told["end_unix_us"]
    seconds = (end_us - begin_us) / 1e6
    maps = [f for f in collector.of_kind("map") if begin_us <= f.header["time_unix_us"] < end_us]
    counters = [f for f in collector.of_kind("counters") if begin_us <= f.header["time_unix_us"] < end_us]
    shares = [frame.header["agent"]["cost_ratio"] for frame in counters]
    blocks = next(count for name, _, count in maps[-1].header["columns"] if name == "block_bytes")
    return {
        "blocks": blocks,
        "share": statistics.mean(shares),
        "worst_share": max(shares),
        "thread_share": told["thread_cpu_s"] / seconds,
        "map_ms": [frame.header["cost_us"] / 1000 for frame in maps],
        "maps_per_s": len(maps) / seconds,
        "counters_per_s": len(counters) / seconds,
        "longest_pause_ms": counters[-1].header["agent"]["longest_pause_us"] / 1000,
    }


def run_job(blocks: int, seconds: float) -> None:
    """Train beside ``blocks`` blocks, a fifth of them free, and print when it was measured and the CPU time of the agent's thread."""
    import torch

    import vramscope

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    many = [torch.empty(300 + place * 37 % 5000, dtype=torch.uint8, device="cuda") for place in range(blocks)]
    kept = [tensor for place, tensor in enumerate(many) if place % 5]
    del many
    vramscope.attach(model, optimizer, budget_ratio=BUDGET_RATIO)

    def train(until_s: float) -> None:
        while time.monotonic() < until_s:
            next_s = time.monotonic() + 1 / STEPS_PER_S
            model(torch.ones(8, 256, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(max(0.0, next_s - time.monotonic()))

    train(time.monotonic() + WARM_UP_S)
    begin_us, begin_cpu_s = time.time_ns() // 1000, agent_thread_cpu_s()
    train(time.monotonic() + seconds)
    told = {
        "begin_unix_us": begin_us,
        "end_unix_us": time.time_ns() // 1000,
        "thread_cpu_s": agent_thread_cpu_s() - begin_cpu_s,
        "kept": len(kept),
    }
    vramscope.detach()
    print(json.dumps(told))


def agent_thread_cpu_s() -> float:
    """Return the kernel's count of the agent's thread (schedstat's first field: nanoseconds on a CPU)."""
    import threading

    (thread,) = [found for found in threading.enumerate() if found.name == "vramscope-agent"]
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9


def import_time_ms(python: Path) -> float:
    """Return the time of ``import vramscope`` in an interpreter without site-packages."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import time; begin = time.perf_counter(); import vramscope; "
        "print(1000 * (time.perf_counter() - begin))"
    )
    done = subprocess.run([str(python), "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
