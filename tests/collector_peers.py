"""Peers of the collector for tests and benchmarks: an agent's frames, a scripted agent on a real socket, a real collector."""

from __future__ import annotations

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramscope.agent.wire import PROTOCOL_VERSION, Decoder, Frame, encode
from vramscope.units import GIB, MIB

SEGMENT_ADDRESS = 0x7F00_0000_0000
CHECKOUT = Path(__file__).resolve().parent.parent


def now_us() -> int:
    return time.time_ns() // 1000


def hello(
    rank: int = 0,
    *,
    name: str = "gpt",
    run_id: str = "run-1",
    world_size: int = 1,
    pid: int | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Return an agent's hello with one device; ``changes`` replace fields of the message."""
    job = {
        "name": name,
        "run_id": run_id,
        "world_size": world_size,
        "rank": rank,
        "local_rank": rank,
        "pid": os.getpid() if pid is None else pid,
        "host": "node-1",
        "started_unix_us": 1_000_000,
        "torch_version": "2.14.1",
        "python_version": "3.11.2",
        "alloc_conf": {},
        "simulated": False,
        "map_way": "history-free",
        "argv0": "train.py",
        "notes": [],
    }
    device = {"device": 0, "name": "GPU", "uuid": f"GPU-{rank}", "total_bytes": 80 * GIB, "backend": "native"}
    return {"kind": "hello", "role": "agent", "protocol": PROTOCOL_VERSION, "job": job, "devices": [device], **changes}


def counters(time_us: int, *, active_bytes: int = 100 * MIB, step: int | None = 1, **figures: Any) -> dict[str, Any]:
    """Return a counters message for device 0; ``figures`` replace counters."""
    device = {
        "device": 0,
        "reserved_bytes": 300 * MIB,
        "allocated_bytes": active_bytes,
        "active_bytes": active_bytes,
        "requested_bytes": active_bytes,
        "inactive_split_bytes": 20 * MIB,
        "num_alloc_retries": 0,
        "num_ooms": 0,
        "device_free_bytes": 10 * GIB,
        "device_total_bytes": 80 * GIB,
        **figures,
    }
    agent = {"cost_ratio": 0.001, "budget_ratio": 0.01, "map_interval_us": 2_000_000}
    return {
        "kind": "counters",
        "time_unix_us": time_us,
        "step": step,
        "phase": "timer",
        "devices": [device],
        "agent": agent,
    }


def map_frame(
    time_us: int, *, blocks: int = 4, at: str = "any", request_id: int | None = None, device: int = 0
) -> bytes:
    """Return a map of one segment whose blocks of 1 MiB are active and inactive by turns."""
    count = range(blocks)
    columns: dict[str, array.array[Any]] = {
        "segment_address": array.array("Q", [SEGMENT_ADDRESS]),
        "segment_total_bytes": array.array("Q", [blocks * MIB]),
        "segment_stream": array.array("Q", [0]),
        "segment_pool_a": array.array("Q", [0]),
        "segment_pool_b": array.array("Q", [0]),
        "segment_is_small": array.array("B", [0]),
        "segment_is_expandable": array.array("B", [0]),
        "segment_first_block": array.array("I", [0, blocks]),
        "block_address": array.array("Q", [SEGMENT_ADDRESS + i * MIB for i in count]),
        "block_bytes": array.array("Q", [MIB] * blocks),
        "block_requested_bytes": array.array("Q", [MIB - 100] * blocks),
        "block_state": array.array("B", [0 if i % 2 == 0 else 2 for i in count]),
    }
    header = {
        "kind": "map",
        "time_unix_us": time_us,
        "device": device,
        "at": at,
        "step": 1,
        "cost_us": 10,
        "request_id": request_id,
    }
    return encode(header, columns)


class ScriptedAgent:
    """A socket that says what a test tells it to."""

    def __init__(self, runtime_folder: Path, greeting: dict[str, Any] | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(str(runtime_folder / "collector.sock"))
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        if greeting is not None:
            self.send(greeting)
            welcome = self.receive()
            assert welcome.kind == "welcome", welcome.header

    def send(self, message: dict[str, Any] | bytes) -> None:
        self.socket.sendall(message if isinstance(message, bytes) else encode(message))

    def receive(self) -> Frame:
        """Return the next frame. Raises EOFError where the collector closed."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> ScriptedAgent:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class CollectorProcess:
    """A real collector, started by the console command and stopped by signals."""

    def __init__(self, runtime_folder: Path, state_folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "vramscope", "collect", "--runtime-dir", str(runtime_folder)]
        command += ["--state-dir", str(state_folder), "--no-nvml", *arguments]
        self.process = subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ready(self) -> str:
        """Return the line that says it collects."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], 30)
        assert readable, "the collector printed nothing within 30 s"
        return self.process.stdout.readline()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def output(self) -> str:
        """Return what it wrote to stderr; only after it ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def collecting(runtime_folder: Path, state_folder: Path, *arguments: str) -> Iterator[CollectorProcess]:
    """Run a collector that is ready, and end it."""
    collector = CollectorProcess(runtime_folder, state_folder, *arguments)
    try:
        collector.ready()
        yield collector
    finally:
        collector.close()
