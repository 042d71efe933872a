"""``vramscope`` commands as real processes in folders of their own, with what they print."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
VRAMSCOPE = (sys.executable, "-m", "vramscope")
DEADLINE_S = 60.0


@contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder with a path short enough for a Unix socket; pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="vs"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def eventually(check: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait until ``check()`` is true; fails with ``what()`` after a generous while."""
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


class Command:
    """A running command, whose socket and history lie in ``folder`` and whose output goes to files there."""

    def __init__(
        self, arguments: Sequence[str], *, folder: Path, cwd: Path = ROOT, environ: dict[str, str] | None = None
    ) -> None:
        places = {"VRAMSCOPE_RUNTIME_DIR": str(folder / "run"), "VRAMSCOPE_STATE_DIR": str(folder / "state")}
        files = [tempfile.mkstemp(dir=folder, prefix=name) for name in ("out", "err")]
        self._output, self._errors = (Path(path) for _, path in files)
        self.process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env={**os.environ, **places, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=files[0][0],
            stderr=files[1][0],
        )
        for descriptor, _ in files:
            os.close(descriptor)

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def line(self, beginning: str) -> str:
        """Wait for a whole line of the output that begins so, and return it."""
        found: list[str] = []

        def look() -> bool:
            lines = self.output.splitlines(keepends=True)
            found[:] = [line.rstrip("\n") for line in lines if line.startswith(beginning) and line.endswith("\n")]
            assert found or self.process.poll() is None, f"it ended without {beginning!r}: {self.output}{self.errors}"
            return bool(found)

        eventually(look, lambda: f"no line begins with {beginning!r}: {self.output}{self.errors}")
        return found[0]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal where it still runs, and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def running(arguments: Sequence[str], *, folder: Path, **options: object) -> Iterator[Command]:
    """A command that is ended with the block, whatever happens in it."""
    command = Command(arguments, folder=folder, **options)  # type: ignore[arg-type]
    try:
        yield command
    finally:
        command.end()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def fetch(url: str, token: str | None = None) -> bytes:
    """Return what a program gets from ``url``; raises HTTPError for a refusal."""
    request = urllib.request.Request(url, headers=bearer(token) if token else {})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return bytes(answer.read())
