"""Opens a snapshot's file for a command: with the columns of the last time, and progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from vramscope.agent.paths import make_private_folder
from vramscope.errors import BadInputError
from vramscope.snapshot.cache import CACHE_LIMIT_BYTES, SnapshotCache, cache_folder
from vramscope.snapshot.opening import Progress
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.opening import open_traced


def open_file(path: Path, state_folder: Path) -> TracedSnapshot:
    """Return the snapshot in ``path``. Raises BadInputError with one line where it cannot be read."""
    try:
        # A folder made on the way to the cache would be open to others, and serve refuses one that is.
        make_private_folder(state_folder, variable="VRAMSCOPE_STATE_DIR")
        cache = SnapshotCache(cache_folder(state_folder), CACHE_LIMIT_BYTES)
    except BadInputError as error:
        sys.stderr.write(f"vramscope: parsed columns are not kept for the next time: {error}\n")
        cache = None
    with _ProgressLine() as progress:
        return open_traced(path, cache=cache, progress=progress)


def is_same_file(a: Path, b: Path) -> bool:
    """Return whether both paths lead to one file that is there."""
    try:
        return a.samefile(b)
    except (OSError, ValueError):
        return False


class _ProgressLine:
    """Shows how far it is on a terminal, and takes the line away at the end."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()

    def __enter__(self) -> Callable[[Progress], None]:
        return self._show

    def __exit__(self, *_: object) -> None:
        self._write("")

    def _show(self, progress: Progress) -> None:
        percent = 100 * progress.done // max(progress.total, 1)
        self._write(f"{progress.stage} {min(percent, 100)} %")

    def _write(self, text: str) -> None:
        if self._shows:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
