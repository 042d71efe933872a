"""One process of the demo: a simulated GPU, the agent, and a scenario on them until it ends or is stopped."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from vramscope.agent.attach import attach, detach, mark
from vramscope.agent.paths import socket_path
from vramscope.agent.source import DeviceDescription
from vramscope.allocator import Allocator, parse_alloc_conf
from vramscope.demo import fragmentation, leak, training
from vramscope.demo.job import Job, Pace, Stopped
from vramscope.demo.mirror import Mirror
from vramscope.demo.settings import DemoSettings
from vramscope.demo.simulated_source import SimulatedSource
from vramscope.units import GIB, format_bytes

SCENARIOS: dict[str, Callable[[Job], None]] = {
    "training": training.run,
    "fragmentation": fragmentation.run,
    "leak": leak.run,
}
# What a CUDA context takes from a card before the first tensor: a usual size, and of a small card at most a sixteenth.
CONTEXT_BYTES, CONTEXT_PART = GIB // 2, 16
# For so long a job that ran out of memory stays as it was, so that the collector gets a last map of it.
LAST_LOOK_S = 5.0
# Above the default of 1 %: no GPU waits for this job, and a demo is there to be watched.
BUDGET_RATIO = 0.05


def run_rank(settings: DemoSettings, rank: int, run_id: str) -> None:
    """Run one rank to its end. The environment already says which it is (RANK, LOCAL_RANK, WORLD_SIZE)."""
    torch.set_num_threads(1)
    pace = Pace()
    _stop_with(pace)
    mirror = Mirror(simulated_gpu(settings, rank), record_stacks=settings.history, after_each=pace.storage)
    source = SimulatedSource(mirror, describe(settings, rank, run_id))
    socket = None if settings.runtime_folder is None else socket_path(settings.runtime_folder)

    def say(text: str) -> None:
        sys.stdout.write(f"rank {rank}: {text}\n")
        sys.stdout.flush()

    def show(model: Any, optimizer: Any) -> None:
        attach(
            model,
            optimizer,
            name=f"demo-{settings.scenario}",
            socket=socket,
            budget_ratio=BUDGET_RATIO,
            source=source,
        )

    job = Job(
        pace=pace,
        attach=show,
        mark=mark,
        say=say,
        capacity_bytes=settings.gpu_bytes,
        steps=settings.steps,
        small=settings.small,
    )
    try:
        _train(job, SCENARIOS[settings.scenario], mirror)
    except Stopped:
        say("stopped")
    finally:
        detach()


def simulated_gpu(settings: DemoSettings, rank: int = 0) -> Allocator:
    """Return a fresh simulated GPU with the capacity and the allocator options of ``settings``."""
    return Allocator(
        settings.gpu_bytes,
        parse_alloc_conf(settings.alloc_conf),
        device=rank,
        other_bytes=min(CONTEXT_BYTES, settings.gpu_bytes // CONTEXT_PART),
    )


def describe(settings: DemoSettings, rank: int, run_id: str) -> DeviceDescription:
    """Return the device of ``rank`` as the agent announces it."""
    size_bytes = settings.gpu_bytes
    return DeviceDescription(
        rank, f"Simulated GPU {format_bytes(size_bytes)}", f"SIM-{rank}-{run_id}", size_bytes, "simulated"
    )


def _train(job: Job, scenario: Callable[[Job], None], mirror: Mirror) -> None:
    try:
        with FakeTensorMode(), mirror:
            scenario(job)
    except torch.OutOfMemoryError as error:
        job.mark("out of memory")
        job.say(f"out of memory, so the job ends\n{error}")
        # The error's traceback still holds the scenario's tensors.
        job.pace.wait(LAST_LOOK_S)


def _stop_with(pace: Pace) -> None:
    """Stop at SIGTERM, and when the parent has died: nobody could stop this process then."""

    def stop(number: int, frame: FrameType | None) -> None:
        pace.stop()

    def watch(parent: Any) -> None:
        parent.join()
        pace.stop()

    signal.signal(signal.SIGTERM, stop)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=watch, args=(parent,), name="vramscope-demo-parent", daemon=True).start()
