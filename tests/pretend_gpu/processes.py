"""The processes of an end-to-end test: jobs on the pretend GPU, a collector, a dashboard, and its API as a client sees it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pretend_gpu.conftest import CHECKOUT, Pretend
from tests.waiting import wait_for
from vramscope.pretend_gpu.environment import nvml_environment
from vramscope.units import GIB

TOKEN = "end-to-end"
TRAINING = CHECKOUT / "tests" / "pretend_gpu" / "job_training.py"


class Job:
    """A training job. ``truth`` is what it last said of itself; it changes nothing until it is told to."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        self.truth = self._answer()

    def do(self, command: str) -> dict[str, Any]:
        """Let the job carry out a command of job_training.py; return its truth afterwards."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self.truth = self._answer()
        return self.truth

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the job ended by itself: {self.log.read_text()}"
        found: dict[str, Any] = json.loads(line)
        return found


class NotThere(AssertionError):
    """The API answered 404."""


class Api:
    """The dashboard's HTTP API at ``base``, an address without a path."""

    def __init__(self, base: str) -> None:
        self.base = base

    def find(self, path: str) -> Any:
        """Return the JSON at ``path`` under /api/v1, or None where the answer is 404 (nothing is known yet)."""
        try:
            return self.get(path)
        except NotThere:
            return None

    def get(self, path: str, *, method: str = "GET") -> Any:
        """Return the JSON at ``path`` under /api/v1."""
        return json.loads(self.fetch(f"/api/v1{path}", method=method))

    def fetch(self, path: str, *, method: str = "GET") -> bytes:
        request = urllib.request.Request(
            self.base + path,
            method=method,
            headers={"Authorization": f"Bearer {TOKEN}"},
            data=b"" if method == "POST" else None,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            with error:
                refusal = NotThere if error.code == 404 else AssertionError
                raise refusal(f"{method} {path}: {error.code} {error.read().decode()}") from None

    def has_collector(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base}/healthz", timeout=5) as answer:
                return bool(json.load(answer)["collector"])
        except OSError:
            return False

    def job_of(self, pid: int) -> dict[str, Any] | None:
        """Return the job one of whose ranks is the process ``pid``, or None."""
        jobs = self.get("/jobs")["jobs"]
        return next((job for job in jobs if any(rank["pid"] == pid for rank in job["ranks"])), None)


class Machine:
    """One pretend machine: its GPUs, and what runs on it. ``folder`` holds sockets, the store and logs."""

    def __init__(self, pretend: Pretend, *, devices: Sequence[int] = (8 * GIB,), other_bytes: int = 0) -> None:
        self.pretend = pretend
        self.devices = devices
        self.other_bytes = other_bytes
        # A Unix socket's path is short, so not pytest's own folder.
        self.folder = Path(tempfile.mkdtemp(prefix="vs-"))
        self.state_file = self.folder / "gpus"
        self.processes: list[subprocess.Popen[str]] = []
        self._folders = {
            "VRAMSCOPE_RUNTIME_DIR": str(self.folder / "run"),
            "VRAMSCOPE_STATE_DIR": str(self.folder / "state"),
        }

    def start_job(self, *arguments: str, extra: Mapping[str, str] | None = None) -> Job:
        """Start job_training.py and return it once it has told its first truth."""
        environ = self.pretend.environ(
            devices=self.devices,
            state_file=self.state_file,
            other_bytes=self.other_bytes,
            extra={**self._folders, **(extra or {})},
        )
        log = self.folder / f"job-{len(self.processes)}.log"
        command = [str(self.pretend.python), str(TRAINING), *arguments]
        return Job(self._start(command, environ, log, talks=True), log)

    def start_collector(self, *, nvml: bool = True, extra: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a collector whose NVML is the pretend one, or is not there."""
        pretend = nvml_environment(self.pretend.folder, self.state_file) if nvml else {}
        environ = {**os.environ, **self._folders, **pretend, **(extra or {})}
        return self._start([sys.executable, "-m", "vramscope", "collect"], environ, self.folder / "collector.log")

    def start_server(self) -> Api:
        """Start a dashboard that starts no collector of its own; return its API once it has found one."""
        command = [sys.executable, "-m", "vramscope", "serve", "--port", "0", "--token", TOKEN, "--no-collector"]
        log = self.folder / "server.log"
        process = self._start(command, {**os.environ, **self._folders}, log)

        def api() -> Api | None:
            assert process.poll() is None, f"the dashboard ended by itself: {log.read_text()}"
            address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            found = Api(address[0]) if address else None
            return found if found and found.has_collector() else None

        return wait_for(api, "the dashboard with a collector")

    def _start(
        self, command: list[str], environ: Mapping[str, str], log: Path, *, talks: bool = False
    ) -> subprocess.Popen[str]:
        """Start a process; one that ``talks`` has its stdin and stdout as pipes, all else goes to ``log``."""
        with log.open("a") as output:
            process = subprocess.Popen(
                command,
                env=environ,
                cwd=CHECKOUT,
                text=True,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else output,
                stderr=output,
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """End every process, jobs first; print what they logged, for the report of a failure, and remove the folder."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        for log in sorted(self.folder.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()}")
        shutil.rmtree(self.folder)
