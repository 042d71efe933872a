"""``vramscope demo``: a collector, a dashboard and a training job as three processes that end together."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from vramscope._location import PACKAGE_FOLDER
from vramscope.agent.paths import make_private_folder

STOP_WAIT_S = 10.0
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def run(arguments: argparse.Namespace) -> int:
    """Run the three until a signal, or until the collector or the dashboard ends; return the exit status.

    They keep their socket and history in folders of their own named ``demo``, apart from those of real jobs. A job that
    ends by itself stays to look at. Raises ModuleNotFoundError before any of them starts and says the same.
    """
    for package in ("dash", "torch"):
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
    folders = [
        _own_folder(arguments.runtime_dir, "VRAMSCOPE_RUNTIME_DIR"),
        _own_folder(arguments.state_dir, "VRAMSCOPE_STATE_DIR"),
    ]
    _say(f"demo: its history is kept apart from that of real jobs, in {folders[1]}")
    places = ["--runtime-dir", str(folders[0]), "--state-dir", str(folders[1])]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    children: list[subprocess.Popen[bytes]] = []
    try:
        children.append(_start(["collect", *places]))
        children.append(_start(["serve", "--no-collector", *_address(arguments), *places], token=arguments.token))
        children.append(_start(["demo", "--no-serve", *_job(arguments), *places]))
        return _wait(*children)
    finally:
        _end(children)


def _own_folder(folder: Path, variable: str) -> Path:
    folder = folder.absolute()
    # Each in turn: mkdir gives the mode 0700 to the last folder only.
    for each in (folder, folder / "demo"):
        make_private_folder(each, variable=variable)
    return folder / "demo"


def _address(arguments: argparse.Namespace) -> list[str]:
    return ["--host", arguments.host, "--port", str(arguments.port)]


def _job(arguments: argparse.Namespace) -> list[str]:
    found = ["--scenario", arguments.scenario, "--ranks", str(arguments.ranks), "--alloc-conf", arguments.alloc_conf]
    if arguments.steps is not None:
        found += ["--steps", str(arguments.steps)]
    if arguments.capacity is not None:
        found += ["--capacity", str(arguments.capacity)]
    found += ["--small"] if arguments.small else []
    return found + (["--no-history"] if arguments.no_history else [])


def _start(command: list[str], *, token: str | None = None) -> subprocess.Popen[bytes]:
    # In the environment, since every user of the machine may read another's command line.
    environ = {**os.environ, "VRAMSCOPE_TOKEN": token} if token else None
    return subprocess.Popen(
        [sys.executable, "-m", "vramscope", *command],
        cwd=PACKAGE_FOLDER.parent,  # -m looks in the working directory first, so it must be the one this package came from
        env=environ,
        start_new_session=True,  # Ctrl-C in a terminal reaches this process alone, which ends the others in their order
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    """Have the kernel end this child where its parent is killed (man 2 prctl)."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(collector: subprocess.Popen[bytes], dashboard: subprocess.Popen[bytes], job: subprocess.Popen[bytes]) -> int:
    job_runs = True
    while True:
        for name, process in (("collector", collector), ("dashboard", dashboard)):
            status = process.poll()
            if status is not None:
                if status == 2:
                    return status  # it has said why
                sys.stderr.write(f"vramscope: the demo ends, because its {name} did (exit status {status})\n")
                return 1
        if job_runs and job.poll() is not None:
            job_runs = False
            if job.returncode:
                return job.returncode  # it has said why, and there is nothing to look at
            _say("demo: the job has ended and stays to look at; Ctrl-C ends the dashboard")
        time.sleep(0.1)


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """End the job before the collector, so that its ranks can say that they end."""
    for process in reversed(children):
        process.terminate()
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
