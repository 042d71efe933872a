"""Parsed columns on disk, found again by the content of the file they came from; the oldest go when there are too many."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from vramscope.agent.paths import make_private_folder
from vramscope.snapshot.storage import MAGIC, StorageError, read_traced
from vramscope.trace.columns import TracedSnapshot

HASH_CHUNK_BYTES = 4 << 20
SUFFIX = ".columns"
PARTIAL_SUFFIX = ".partial"
ABANDONED_AFTER_S = 86_400.0
# A file of a million events leaves some 100 MB.
CACHE_LIMIT_BYTES = 4 << 30


def cache_folder(state_folder: Path) -> Path:
    """Return where parsed snapshots are kept, under the state folder."""
    return state_folder / "parsed"


def content_key(file: FileIO, progress: Callable[[int], None]) -> str:
    """Return a name for what ``file`` holds and for the format of the columns; where ``file`` stands does not change.

    SHA-256 of every byte: 0.15 s for 138 MB, and a file that was changed is never taken for what it was.
    """
    digest = hashlib.sha256(MAGIC)
    buffer = memoryview(bytearray(HASH_CHUNK_BYTES))
    done = 0
    while count := os.preadv(file.fileno(), [buffer], done):
        digest.update(buffer[:count])
        done += count
        progress(done)
    return digest.hexdigest()


class SnapshotCache:
    """A private folder of at most ``limit_bytes``; processes may share it."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Raises BadInputError where the folder cannot be made, or is open to others."""
        make_private_folder(folder, variable="VRAMSCOPE_STATE_DIR")
        self._folder, self._limit_bytes = folder, limit_bytes

    def find(self, key: str) -> TracedSnapshot | None:
        """Return the snapshot kept under ``key``, None where there is none or it is damaged (then it is removed)."""
        path = self._path(key)
        try:
            found = read_traced(path)
        except OSError:
            return None
        except StorageError:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return found

    @contextlib.contextmanager
    def place(self) -> Iterator[Path]:
        """Yield a path for a new file, which is gone after the block unless ``keep`` took it.

        Where the folder cannot be written to, it is elsewhere, and will not be kept.
        """
        try:
            partial = tempfile.TemporaryDirectory(dir=self._folder, suffix=PARTIAL_SUFFIX)
        except OSError:
            partial = tempfile.TemporaryDirectory(prefix="vramscope-")
        with partial as folder:
            yield Path(folder, "columns")

    def keep(self, path: Path, key: str) -> None:
        """Keep the new file at ``path`` under ``key``, where the folder can be written to."""
        with contextlib.suppress(OSError):
            path.replace(self._path(key))
            self._shrink(keep=self._path(key))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{SUFFIX}"

    def _shrink(self, keep: Path) -> None:
        """Remove what was not used for longest, until the rest fits; and what a killed process left half done."""
        for partial in self._folder.glob(f"*{PARTIAL_SUFFIX}"):
            if _used_s(partial) < time.time() - ABANDONED_AFTER_S:
                shutil.rmtree(partial, ignore_errors=True)
        entries = sorted(self._folder.glob(f"*{SUFFIX}"), key=_used_s)
        total_bytes = sum(map(_size_bytes, entries))
        for entry in entries:
            if total_bytes > self._limit_bytes and entry != keep:
                total_bytes -= _size_bytes(entry)
                entry.unlink(missing_ok=True)


def _used_s(path: Path) -> float:
    """Return when ``path`` was used last; another process may have removed it just now."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
