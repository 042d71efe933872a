"""Runs the demo's job: one process for each rank, started, stopped and waited for together."""

from __future__ import annotations

import faulthandler
import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType

from vramscope.agent.job import ALLOC_CONF_VARIABLES
from vramscope.agent.paths import socket_path
from vramscope.allocator import parse_alloc_conf
from vramscope.demo.settings import DemoSettings
from vramscope.errors import VramscopeError

# The exit status of a rank in which torch is installed and does not work. (Every rank finds that, so the parent says it once.)
_BROKEN_TORCH = 3


def run(settings: DemoSettings) -> int:
    """Run the job until it ends or SIGINT or SIGTERM stops it; call it from the main thread.

    Return 0, a job that ran out of memory included, since a scenario may be about that, or 1 where a rank failed. Raises
    VramscopeError, and BadInputError for allocator settings that PyTorch would refuse and for a path too long for a socket.
    """
    if importlib.util.find_spec("torch") is None:
        raise VramscopeError(
            "the demo trains with PyTorch, which is not installed here (its build without CUDA is enough); "
            f"run: {sys.executable} -m pip install 'vramscope[demo]'"
        )
    # Here, where an error can still be one line.
    parse_alloc_conf(settings.alloc_conf)
    if settings.runtime_folder is not None:
        socket_path(settings.runtime_folder)
    run_id = f"demo-{os.getpid()}-{int(time.time())}"
    # Ctrl-C in a terminal reaches every process; the children inherit that it is ignored, and are stopped by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=_rank_process, args=(settings, rank, run_id)) for rank in range(settings.ranks)]
    for process in ranks:
        process.start()
    return _wait(ranks)


def _rank_process(settings: DemoSettings, rank: int, run_id: str) -> None:
    faulthandler.enable()  # a crash below Python says in which thread and where
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(settings.ranks), TORCHELASTIC_RUN_ID=run_id)
    # The agent announces these variables, so they must say what is simulated.
    for variable in ALLOC_CONF_VARIABLES:
        os.environ.pop(variable, None)
    if settings.alloc_conf:
        os.environ["PYTORCH_ALLOC_CONF"] = settings.alloc_conf
    # Torch is only imported here: the parent stays small.
    try:
        from vramscope.demo.rank import run_rank
    except (ImportError, OSError):  # OSError: a library of torch's is missing or broken
        sys.exit(_BROKEN_TORCH)
    run_rank(settings, rank, run_id)


def _wait(ranks: list[SpawnProcess]) -> int:
    """Wait for all ranks; stop all at a signal, or once one has failed, as torchrun does."""
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for process in ranks:
            process.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    status = 0
    running = list(ranks)
    while running:
        wait([process.sentinel for process in running])
        for process in [process for process in running if not process.is_alive()]:
            running.remove(process)
            if process.exitcode and not stopping:
                sys.stderr.write(f"vramscope: {_failure(ranks.index(process), process.exitcode)}\n")
                status = 1
                stop(signal.SIGTERM, None)
    return status


def _failure(rank: int, exit_status: int) -> str:
    """Return the line that says how a rank failed."""
    if exit_status == _BROKEN_TORCH:
        return (
            "the demo trains with PyTorch, which is installed here and cannot be imported; "
            f"to see why, run: {sys.executable} -c 'import torch'"
        )
    return f"rank {rank} failed (exit status {exit_status})"
