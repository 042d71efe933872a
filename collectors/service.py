"""The collector process: one thread that serves sockets and writes the history, and one that samples NVML."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

import vramscope
from collectors.calls import Calls
from collectors.desk import Desk
from collectors.encoding import to_json
from collectors.jobs import Jobs
from collectors.keeper import Keeper
from collectors.network import Network, log, now_us
from collectors.nvml import Sampler
from collectors.peer import process_start
from collectors.settings import CollectorSettings, dumps_folder, store_path
from collectors.startup import Door, take_lock
from vramscope.agent.paths import make_private_folder, socket_path
from vramscope.errors import VramscopeError

FLUSH_S = 1.0
CPU_WINDOW_S = 10.0
# How often those who wait for a job are looked at, while somebody waits.
WAITING_TICK_S = 0.05


def run(settings: CollectorSettings) -> int:
    """Collect until SIGTERM or SIGINT; returns the exit status. Raises VramscopeError where it cannot start."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    # A line that cannot be written is left out; logging would tell of that with a traceback.
    logging.raiseExceptions = False
    runtime, state = settings.runtime_folder, settings.state_folder
    make_private_folder(runtime)
    make_private_folder(state, variable="VRAMSCOPE_STATE_DIR")
    door = Door(runtime)
    state_lock: int | None = None
    try:
        # Where nothing can be written, collecting goes on live, as on a disk that is full later.
        if os.access(state, os.W_OK):
            make_private_folder(dumps_folder(state), variable="VRAMSCOPE_STATE_DIR")
            state_lock = take_lock(state)
        keeper = Keeper(store_path(state), cap_bytes=settings.store_cap_bytes)
        collector = Collector(settings, door, keeper, Sampler() if settings.nvml else None)
        _say(f"collecting on {socket_path(runtime)}, store {store_path(state)}")
        collector.serve()
    finally:
        door.close()
        if state_lock is not None:
            os.close(state_lock)
    return 0


def _say(line: str) -> None:
    # The output may be a log on a disk that is full, or a pipe that nobody reads: no reason to end.
    with contextlib.suppress(OSError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Collector:
    """Ties the state machine to the network, the store, NVML and the clock."""

    def __init__(self, settings: CollectorSettings, door: Door, keeper: Keeper, sampler: Sampler | None) -> None:
        self._settings = settings
        self._door = door
        self._door_problem: str | None = None
        self._keeper = keeper
        self._sampler = sampler
        self._started_us = now_us()
        self._cpu = CpuMeter()
        self._jobs = Jobs(process_start=process_start)
        self._calls = Calls(
            self._jobs, dumps_folder(settings.state_folder), status=self._status, dump_bytes=_check_dump
        )
        self._calls.dumps = {dump.id: dump for dump in keeper.load(self._jobs)}
        self._network = Network(door.open(), Desk(settings, vramscope.__version__, self._jobs, self._calls))
        self._stopping = False

    def serve(self) -> None:
        """Serve until SIGTERM or SIGINT, then write what is left and remove the socket."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        if self._sampler is not None:
            self._sampler.start()
        try:
            with self._network.woken_by_signals():
                self._loop()
        finally:
            self._close()

    def _stop(self, _signal: int, _frame: Any) -> None:
        self._stopping = True

    def _loop(self) -> None:
        tick_at_s = flush_at_s = time.monotonic()
        while not self._stopping:
            wake_at_s = min(flush_at_s, tick_at_s) if self._calls.waiting else flush_at_s
            self._network.serve(max(0.0, wake_at_s - time.monotonic()))
            if time.monotonic() >= tick_at_s:
                self._network.tick()
                tick_at_s = time.monotonic() + WAITING_TICK_S
            if time.monotonic() >= flush_at_s:
                self._flush()
                self._keep_door()
                flush_at_s = time.monotonic() + FLUSH_S

    def _keep_door(self) -> None:
        """Open the socket again where it was removed; where that cannot be, those who are connected are served on."""
        if self._door.is_there:
            return
        before, self._door_problem = self._door_problem, None
        try:
            self._network.listen_on(self._door.open())
        except VramscopeError as error:
            self._door_problem = f"new jobs do not find this collector: {error}"
            if self._door_problem != before:
                log.warning("%s", self._door_problem)
        else:
            log.warning("the socket had been removed; it is there again")

    def _flush(self) -> None:
        if self._sampler is not None:
            self._jobs.readings = self._sampler.readings
        changes = self._jobs.take_changes()
        changes.readings = {uuid: to_json(reading) for uuid, reading in self._jobs.readings.items()}
        self._keeper.flush(self._jobs, changes, now_us())
        self._cpu.tick()

    def _close(self) -> None:
        self._network.close()
        self._jobs.keep_maps()
        self._flush()
        self._keeper.close()
        if self._sampler is not None:
            self._sampler.stop()

    def _status(self) -> dict[str, Any]:
        return {
            "version": vramscope.__version__,
            "pid": os.getpid(),
            "started_unix_us": self._started_us,
            "nvml_available": self._sampler is not None and self._sampler.available,
            "messages": self._messages(),
            "store_path": str(store_path(self._settings.state_folder)),
            "store_bytes": self._keeper.used_bytes(),
            "cpu_ratio": self._cpu.ratio,
        }

    def _messages(self) -> list[str]:
        found = [self._keeper.message, self._door_problem]
        found.append(self._sampler.message() if self._sampler is not None else "NVML is not asked (--no-nvml)")
        if self._jobs.dropped_samples:
            found.append(
                f"{self._jobs.dropped_samples} samples were dropped: their clock went back, or lies in the future"
            )
        return [line for line in (*found, *self._network.refusals(now_us())) if line is not None]


class CpuMeter:
    """This process's share of one core, over the last ten seconds or so."""

    def __init__(self) -> None:
        self._since_s, self._used_s = time.monotonic(), time.process_time()
        self.ratio: float | None = None

    def tick(self) -> None:
        passed_s = time.monotonic() - self._since_s
        if passed_s >= CPU_WINDOW_S:
            used_s = time.process_time()
            self.ratio = (used_s - self._used_s) / passed_s
            self._since_s, self._used_s = time.monotonic(), used_s


def _check_dump(path: Path) -> int:
    """Return the size of a snapshot. Raises VramscopeError unless it is a plain file where the job was told to write it."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise VramscopeError(f"the job said it wrote {path}, but: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode) or path.resolve().parent != path.parent.resolve():
        raise VramscopeError(f"the job did not write a plain file at {path}; it is not listed")
    return found.st_size
