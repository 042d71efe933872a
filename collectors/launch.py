"""Starts a collector as a process of its own where none answers; the dashboard's way to be useful by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import vramscope
from collectors.client import Client, CollectorAway
from collectors.settings import CollectorSettings, log_path
from vramscope.agent.paths import make_private_folder, socket_path
from vramscope.errors import VramscopeError

LOG_CAP_BYTES = 1 << 20


def ensure_running(settings: CollectorSettings, *, wait_s: float = 5.0) -> int | None:
    """Return the pid of the collector that was started, or None where one already answers.

    The new process is detached (it outlives the caller) and writes to ``collector.log``. Raises VramscopeError with one
    line where it ends at once or does not answer within ``wait_s``; ``wait_s=0`` starts it without waiting.
    """
    socket_path(settings.runtime_folder)
    make_private_folder(settings.runtime_folder)
    if _answering_pid(settings.runtime_folder) is not None:
        return None
    make_private_folder(settings.state_folder, variable="VRAMSCOPE_STATE_DIR")
    log = log_path(settings.state_folder)
    process = _spawn(settings, log)
    # Somebody must wait for a child that may end long before us, or it stays as a zombie.
    threading.Thread(target=process.wait, name="vramscope-collector", daemon=True).start()
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        # Read before asking who answers: one that lost a race against another's collector ends, and the other answers.
        ended = process.poll() is not None
        pid = _answering_pid(settings.runtime_folder)
        if pid is not None:
            return pid if pid == process.pid else None
        if ended:
            raise VramscopeError(f"the collector could not start: {_last_line(log)}")
        time.sleep(0.02)
    if wait_s > 0:
        process.terminate()
        raise VramscopeError(f"the collector (pid {process.pid}) does not answer after {wait_s:g} s; see {log}")
    return process.pid


def _answering_pid(runtime_folder: Path) -> int | None:
    """Return the pid of the collector that answers, or None. Raises VramscopeError where one of another version does."""
    client = Client(runtime_folder)
    try:
        return int(client.call("status", timeout_s=1.0).header["result"]["pid"])
    except CollectorAway:
        return None
    finally:
        client.close()


def _spawn(settings: CollectorSettings, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "vramscope", "collect"]
    # The new process works in another folder.
    runtime, state = settings.runtime_folder.absolute(), settings.state_folder.absolute()
    command += ["--runtime-dir", str(runtime), "--state-dir", str(state)]
    command += [
        "--map-interval-ms",
        str(settings.map_interval_us // 1000),
        "--counters-hz",
        f"{settings.counters_hz:g}",
    ]
    command += ["--store-cap-mib", str(settings.store_cap_bytes >> 20)]
    if not settings.nvml:
        command.append("--no-nvml")
    output = _open_log(log)
    try:
        # -m looks in the working directory first, so that it must be the one this package came from.
        return subprocess.Popen(
            command,
            cwd=Path(vramscope.__path__[0]).parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    finally:
        os.close(output)


def _open_log(log: Path) -> int:
    """Return a descriptor to write to: that of nothing where the log cannot be kept, as on a disk that is read-only."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        if log.exists() and log.stat().st_size > LOG_CAP_BYTES:
            flags |= os.O_TRUNC
        return os.open(log, flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else f"it wrote nothing to {log}"
