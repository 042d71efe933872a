"""The files that were opened by path or upload, kept in a small JSON file so that links to them survive a restart."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from vramscope.snapshot.opening import printable

COMMAND_LINE, UPLOAD, JOB = "command line", "upload", "job"
MOST_REMEMBERED = 100
LARGEST_LIST_BYTES = 1 << 20


@dataclass(frozen=True)
class FileRecord:
    """A file that may be opened; ``id`` names its path, size and time of change, so a file that was changed is another one."""

    id: str
    path: str
    name: str
    origin: str
    size_bytes: int
    changed_ns: int
    job_id: str | None = None
    rank: int | None = None


def record_of(path: Path, name: str, origin: str, *, job_id: str | None = None, rank: int | None = None) -> FileRecord:
    """Return the record of the file at ``path`` as it is now. Raises OSError where it cannot be looked at."""
    found = path.stat()
    identity = f"{path}\0{found.st_size}\0{found.st_mtime_ns}"
    file_id = hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]
    return FileRecord(file_id, str(path), printable(name), origin, found.st_size, found.st_mtime_ns, job_id, rank)


class Remembered:
    """At most MOST_REMEMBERED records, the newest last; safe for any number of threads, and of dashboards over one folder."""

    def __init__(self, path: Path) -> None:
        """``path`` is the JSON file; where it is missing, damaged or another version's, nothing is remembered."""
        self._path = path
        self._lock = threading.Lock()
        self._records = {record.id: record for record in _read(path)}

    def all(self) -> list[FileRecord]:
        with self._lock:
            return list(self._records.values())

    def get(self, file_id: str) -> FileRecord | None:
        return self._records.get(file_id)

    def add(self, record: FileRecord) -> list[FileRecord]:
        """Add a record, or move it to the end. Returns those that are forgotten for it."""
        with self._lock, _held(self._path.parent):
            records = [*(known for known in self._merged() if known.id != record.id), record]
            self._keep(records[-MOST_REMEMBERED:])
            return records[:-MOST_REMEMBERED]

    def remove(self, file_id: str) -> None:
        with self._lock, _held(self._path.parent):
            self._keep([known for known in self._merged() if known.id != file_id])

    def _merged(self) -> list[FileRecord]:
        """Return what the file has, which another dashboard may have written, after what only this one knows."""
        found = {record.id: record for record in _read(self._path)}
        # An upload that the other one has removed is gone for both.
        own = [known for known in self._records.values() if known.id not in found and Path(known.path).is_file()]
        return [*own, *found.values()]

    def _keep(self, records: list[FileRecord]) -> None:
        self._records = {record.id: record for record in records}
        # A full disk or a folder without write permission costs the links after a restart, and not the file that was
        # opened just now.
        with contextlib.suppress(OSError):
            _write(self._path, orjson.dumps([asdict(record) for record in records]))


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other dashboards from writing to ``folder`` meanwhile, where its file system can."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            # The lock ends with the descriptor.
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _write(path: Path, content: bytes) -> None:
    # mkstemp makes the file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> list[FileRecord]:
    try:
        if path.stat().st_size > LARGEST_LIST_BYTES:
            return []
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return []
    return [record for record in map(_record, found if isinstance(found, list) else []) if record is not None]


def _record(found: Any) -> FileRecord | None:
    try:
        record = FileRecord(**found)
    except TypeError:
        return None
    texts = (record.id, record.path, record.name, record.origin)
    numbers = (record.size_bytes, record.changed_ns)
    is_whole = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)
    return record if is_whole and record.origin in (COMMAND_LINE, UPLOAD) else None
