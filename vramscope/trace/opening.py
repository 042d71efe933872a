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

from vramscope.errors import BadInputError
from vramscope.snapshot.cache import SnapshotCache, content_key
from vramscope.snapshot.containers import DUMP_AGAIN, GZIP, ZSTD
from vramscope.snapshot.limits import DEFAULT_LIMITS, Limits
from vramscope.snapshot.opening import OpeningCancelled, Progress, printable, shown
from vramscope.snapshot.process import ReaderChild
from vramscope.snapshot.storage import StorageError, read_traced
from vramscope.trace.columns import TracedSnapshot

# A file of this size is read while the cache is asked for it: that takes as long as reading all of its bytes.
LARGE_FILE_BYTES = 16 << 20


@dataclass(frozen=True)
class _Opening:
    """One call of :func:`open_traced`."""

    path: Path
    file: FileIO
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

    def key(self) -> str:
        """Return the name of the file's content in the cache."""
        return content_key(self.file, lambda done: self.report("looking", done, self.size_bytes))

    def child(self, result: Path) -> ReaderChild:
        """Return a child that reads the file into ``result``."""
        is_packed = os.pread(self.file.fileno(), len(ZSTD), 0).startswith((GZIP, ZSTD))
        return ReaderChild(
            self.file,
            result,
            memory_bytes=self.limits.memory_for(self.size_bytes, is_packed),
            seconds=self.limits.seconds_for(self.size_bytes),
            unpacked_bytes=self.limits.unpacked_bytes,
        )

    def read(self, child: ReaderChild, result: Path) -> TracedSnapshot:
        """Return what the child made of the file."""
        failure = child.failure(self.report)
        if failure is not None:
            raise BadInputError(f"{shown(self.path)} cannot be read: {printable(failure)}")
        try:
            return read_traced(result)
        except (OSError, StorageError) as error:
            raise BadInputError(
                f"{shown(self.path)} was read, and its columns were not kept: {printable(str(error))}"
            ) from None

    def kept(self, child: ReaderChild, result: Path, cache: SnapshotCache, key: str) -> TracedSnapshot:
        """Return the same, and keep it under ``key``."""
        found = self.read(child, result)
        cache.keep(result, key)
        return found


def open_traced(
    path: Path,
    *,
    cache: SnapshotCache | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    limits: Limits = DEFAULT_LIMITS,
) -> TracedSnapshot:
    """Return the snapshot in ``path`` with its traces; with a ``cache`` the second opening reads no more than the file's bytes.

    ``progress`` is called some times a second, in the caller's thread; ``cancelled`` is asked as often. Raises
    BadInputError with one line for whatever is wrong with the file, and OpeningCancelled.
    """
    with _opened(path, limits) as file:
        opening = _Opening(path, file, os.fstat(file.fileno()).st_size, limits, progress, cancelled)
        if cache is None:
            with tempfile.TemporaryDirectory(prefix="vramscope-") as folder:
                result = Path(folder, "columns")
                with opening.child(result) as child:
                    return opening.read(child, result)
        return _through_cache(opening, cache)


def _through_cache(opening: _Opening, cache: SnapshotCache) -> TracedSnapshot:
    if opening.size_bytes >= LARGE_FILE_BYTES:
        with cache.place() as result, opening.child(result) as child:
            key = opening.key()
            return cache.find(key) or opening.kept(child, result, cache, key)
    key = opening.key()
    found = cache.find(key)
    if found is not None:
        return found
    with cache.place() as result, opening.child(result) as child:
        return opening.kept(child, result, cache, key)


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
