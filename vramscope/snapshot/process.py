"""Runs the reader's child: passes its progress on, and ends it when it is cancelled or takes too long."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from vramscope._location import PACKAGE_FOLDER
from vramscope.snapshot.containers import DUMP_AGAIN

# Cancellation and the time limit are looked at this often.
POLL_S = 0.1
MAX_OUTPUT_BYTES = 1 << 20
FEWER = "record fewer events (max_entries)"
CRASHED = f"it is built to crash its reader, or damaged; {DUMP_AGAIN}"


class ReaderChild:
    """A child that reads a file; used in a ``with`` block, at whose end it is gone."""

    def __init__(self, file: FileIO, result: Path, *, memory_bytes: int, seconds: float, unpacked_bytes: int) -> None:
        """Start reading ``file``, from where it stands, into ``result``; the three limits are those of Limits."""
        self._seconds = seconds
        self._deadline_s = time.monotonic() + seconds
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vramscope.snapshot.child",
                str(result.absolute()),
                *map(str, (memory_bytes, int(seconds), unpacked_bytes)),
            ],
            # -m looks in the working directory first, so that it must be the one this package came from.
            cwd=PACKAGE_FOLDER.parent,
            # Each thread of OpenBLAS would take its share of the address space, and nothing here multiplies matrices.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # It may have a second process, which goes with it.
            start_new_session=True,
        )

    def __enter__(self) -> ReaderChild:
        return self

    def __exit__(self, *_: object) -> None:
        # Once waited for, its number may be another's.
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def failure(self, report: Callable[[str, int, int], None]) -> str | None:
        """Wait for the result; return None, or in words why there is none.

        ``report`` is called with stage, done and total, or with the stage "" when there is nothing new.
        """
        try:
            for line in _lines(self._process, self._deadline_s):
                if line.get("done") is True:
                    return None
                if "error" in line:
                    return str(line["error"])
                report(str(line.get("stage", "")), int(line.get("done", 0)), int(line.get("total", 0)))
            return _death(self._process.wait(), self._seconds)
        except TimeoutError:
            return f"reading it takes more than {self._seconds:.0f} s; {FEWER}"


def _lines(child: subprocess.Popen[bytes], deadline_s: float) -> Iterator[dict[str, Any]]:
    """Yield what the child tells, and an empty record at each poll. Raises TimeoutError at the deadline."""
    if child.stdout is None:
        return
    rest, told_bytes = b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while told_bytes <= MAX_OUTPUT_BYTES:
            if time.monotonic() > deadline_s:
                raise TimeoutError
            yield {}
            if not selector.select(POLL_S):
                continue
            received = os.read(child.stdout.fileno(), 65536)
            if not received:
                return
            told_bytes += len(received)
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                found = json.loads(line)
                yield found if isinstance(found, dict) else {}


def _death(status: int, seconds: float) -> str:
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        return f"reading it takes more than {seconds:.0f} s, or more memory than there is; {FEWER}"
    if status > 0:
        return f"its reader did not start (exit status {status}); install vramscope again"
    return CRASHED
