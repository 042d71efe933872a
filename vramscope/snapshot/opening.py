"""Opens a snapshot file of any kind: from the cache of parsed columns, or through a child process that may fail in its stead."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from vramscope.errors import BadInputError
from vramscope.snapshot.cache import SnapshotCache, content_key
from vramscope.snapshot.columns import Snapshot
from vramscope.snapshot.containers import DUMP_AGAIN, GZIP, ZSTD
from vramscope.snapshot.limits import DEFAULT_LIMITS, Limits
from vramscope.snapshot.process import run_child
from vramscope.snapshot.storage import StorageError, read_snapshot

MAX_SHOWN = 300


class Progress(NamedTuple):
    """How far an opening is: ``stage`` is "looking", "reading" (both in bytes) or "building" (in events)."""

    stage: str
    done: int
    total: int


class OpeningCancelled(BadInputError):
    """The caller asked to stop."""


@dataclass(frozen=True)
class _Opening:
    """One call of :func:`open_snapshot`."""

    path: Path
    size_bytes: int
    limits: Limits
    progress: Callable[[Progress], None]
    cancelled: Callable[[], bool]

    def report(self, stage: str, done: int, total: int) -> None:
        """Pass progress on (none where ``stage`` is empty). Raises OpeningCancelled when the caller wants to stop."""
        if self.cancelled():
            raise OpeningCancelled(f"opening {shown(self.path)} was cancelled")
        if stage:
            self.progress(Progress(stage, done, total))


def open_snapshot(
    path: Path,
    *,
    cache: SnapshotCache | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    limits: Limits = DEFAULT_LIMITS,
) -> Snapshot:
    """Return the snapshot in ``path``; with a ``cache`` the second opening reads no more than the file's bytes.

    ``progress`` is called some times a second, in the caller's thread; ``cancelled`` is asked as often. Raises
    BadInputError with one line for whatever is wrong with the file, and OpeningCancelled.
    """
    with _opened(path, limits) as file:
        opening = _Opening(path, os.fstat(file.fileno()).st_size, limits, progress, cancelled)
        if cache is None:
            with tempfile.TemporaryDirectory(prefix="vramscope-") as folder:
                return _read_in_child(opening, file, Path(folder, "columns"))
        key = content_key(file, lambda done: opening.report("looking", done, opening.size_bytes))
        found = cache.find(key)
        if found is None:
            with cache.place(key) as place:
                found = _read_in_child(opening, file, place)
        return found


@contextmanager
def _opened(path: Path, limits: Limits) -> Iterator[FileIO]:
    try:
        # A pipe would wait for ever at open().
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInputError(f"cannot read {shown(path)}: {error.strerror}; is the path right?") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise BadInputError(f"{shown(path)} is not a file; name the file of a snapshot")
        if not found.st_size:
            raise BadInputError(f"{shown(path)} is empty: the dump was cut off before it began; {DUMP_AGAIN}")
        if found.st_size > limits.file_bytes:
            raise BadInputError(
                f"{shown(path)} has {found.st_size >> 20} MiB and at most {limits.file_bytes >> 20} are read; "
                "record fewer events (max_entries)"
            )
        yield FileIO(descriptor, closefd=False)
    finally:
        os.close(descriptor)


def _read_in_child(opening: _Opening, file: FileIO, result: Path) -> Snapshot:
    file.seek(0)
    packed = file.read(len(ZSTD)).startswith((GZIP, ZSTD))
    file.seek(0)
    limits = opening.limits
    failure = run_child(
        file,
        result,
        memory_bytes=limits.memory_for(opening.size_bytes, packed),
        seconds=limits.seconds_for(opening.size_bytes),
        unpacked_bytes=limits.unpacked_bytes,
        report=opening.report,
    )
    if failure is not None:
        raise BadInputError(f"{shown(opening.path)} cannot be read: {printable(failure)}")
    try:
        return read_snapshot(result)
    except (OSError, StorageError) as error:
        raise BadInputError(
            f"{shown(opening.path)} was read, and its columns were not kept: {printable(str(error))}"
        ) from None


def shown(path: Path) -> str:
    """Return a path as one line of plain characters: a file's name may hold anything."""
    return printable(str(path))


def printable(text: str) -> str:
    """Return ``text`` without what moves a terminal's cursor, and not longer than a line or two."""
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain if len(plain) <= MAX_SHOWN else f"{plain[:MAX_SHOWN]}…"
