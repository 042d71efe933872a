"""A script that serves the page in a process of its own, for benchmarks that must not share theirs with it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

STARTING_S = 60.0


@contextmanager
def serving(script: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the address of ``script --serve PORT`` once it answers, and end its process afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([sys.executable, script, "--serve", str(port), *arguments])
    address = f"http://127.0.0.1:{port}/"
    try:
        deadline = time.monotonic() + STARTING_S
        while True:
            try:
                urlopen(f"{address}healthz", timeout=5).close()
                break
            except URLError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)
