"""The files that were opened by path or upload, kept in a small JSON file so that links to them survive a restart."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
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
    """At most MOST_REMEMBERED records, the newest last; safe for any number of threads."""

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
        with self._lock:
            self._records.pop(record.id, None)
            self._records[record.id] = record
            records = list(self._records.values())
            forgotten = records[:-MOST_REMEMBERED]
            self._records = {kept.id: kept for kept in records[-MOST_REMEMBERED:]}
            self._write()
            return forgotten

    def remove(self, file_id: str) -> None:
        with self._lock:
            if self._records.pop(file_id, None) is not None:
                self._write()

    def _write(self) -> None:
        # mkstemp makes the file with mode 0600.
        descriptor, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps([asdict(record) for record in self._records.values()]))
            Path(temporary).replace(self._path)
        except OSError:
            # A full disk costs the links after a restart, and not the file that was opened just now.
            Path(temporary).unlink(missing_ok=True)


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
