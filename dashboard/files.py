"""The registry of snapshot files that the pages may open: named on the command line, uploaded, or written by a job."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dashboard.files_opened import OpenedFile
from dashboard.files_opening import CLOSED, OPEN, RUNNING, Opening, OpeningState
from dashboard.files_remembered import COMMAND_LINE, JOB, UPLOAD, FileRecord, Remembered, record_of
from dashboard.files_uploads import Uploads
from vramscope.agent.paths import make_private_folder
from vramscope.errors import BadInputError
from vramscope.records import DumpInfo, LiveData
from vramscope.snapshot.cache import CACHE_LIMIT_BYTES, SnapshotCache, cache_folder
from vramscope.snapshot.opening import Progress, shown
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.opening import open_traced

MOST_OPEN = 4
# Each is a process of its own; more would only slow each other down.
MOST_OPENING = 2
# A file that had to make room comes back from the columns on disk.
REOPENING_WAIT_S = 5.0


class FileNotOpen(BadInputError):
    """What is asked needs the file open, and it is not, or not yet."""


class UnknownFile(BadInputError):
    """No file of that id may be opened."""


class SnapshotFiles:
    """Opens registered files and no others; at most MOST_OPEN stay in memory. Safe for any number of threads."""

    def __init__(self, state_folder: Path, live: LiveData, *, dumps_folder: Path) -> None:
        """``dumps_folder`` is where jobs' dumps lie. Raises BadInputError with one line where the state folder cannot be used."""
        make_private_folder(state_folder, variable="VRAMSCOPE_STATE_DIR")
        self.uploads = Uploads(state_folder / "uploads")
        self._cache = SnapshotCache(cache_folder(state_folder), CACHE_LIMIT_BYTES)
        self._remembered = Remembered(state_folder / "opened-files.json")
        self._live = live
        self._dumps_folder = dumps_folder.resolve()
        self._dumps: dict[str, FileRecord] = {}
        self._openings: dict[str, Opening] = {}
        self._opened: OrderedDict[str, OpenedFile] = OrderedDict()
        self._turns = threading.Semaphore(MOST_OPENING)
        self._lock = threading.Lock()

    def add_path(self, path: Path, *, name: str | None = None, origin: str = COMMAND_LINE) -> str:
        """Register the file at ``path`` and return its id. Raises BadInputError with one line where it is no file."""
        try:
            path = path.resolve(strict=True)
            record = record_of(path, name or path.name, origin)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is a link to itself"
            raise BadInputError(f"cannot read {shown(path)}: {reason}; is the path right?") from None
        if not path.is_file():
            raise BadInputError(f"{shown(path)} is not a file; name the file of a snapshot")
        for forgotten in self._remembered.add(record):
            self._forget(forgotten)
        return record.id

    def finish_upload(self, upload: str) -> str:
        """Register a complete upload and return its id. Raises UploadRefused."""
        path, name = self.uploads.finish(upload)
        return self.add_path(path, name=name, origin=UPLOAD)

    def records(self) -> list[FileRecord]:
        """Return every file that may be opened and is there, the newest first."""
        self._dumps = {record.id: record for record in map(self._dump_record, self._live.dumps()) if record is not None}
        there = [record for record in self._remembered.all() if Path(record.path).is_file()]
        return sorted([*there, *self._dumps.values()], key=lambda record: -record.changed_ns)

    def id_of_dump(self, dump: DumpInfo) -> str | None:
        """Return the id of a job's dump, None where its file is gone."""
        record = self._dump_record(dump)
        return None if record is None else record.id

    def record(self, file_id: str) -> FileRecord:
        """Return the record of a file. Raises UnknownFile."""
        found = self._remembered.get(file_id) or self._dumps.get(file_id)
        if found is None:
            self.records()
            found = self._dumps.get(file_id)
        if found is None:
            raise UnknownFile(
                f"no file {file_id} is known here; open it with vramscope open FILE, or drop it on the page"
            )
        return found

    def start(self, file_id: str) -> None:
        """Open a file, unless that has begun; one that failed or was cancelled is tried again. Raises UnknownFile."""
        record = self.record(file_id)
        with self._lock:
            running = self._openings.get(file_id)
            if file_id in self._opened or (running is not None and running.state.state in RUNNING):
                return
            is_again = running is not None and running.state.state == OPEN
            opening = Opening(partial(self._open, record), partial(self._keep, file_id), self._turns, is_again=is_again)
            self._openings[file_id] = opening

    def cancel(self, file_id: str) -> None:
        """End the opening of a file, if it is being opened."""
        running = self._openings.get(file_id)
        if running is not None:
            running.cancel()

    def state(self, file_id: str) -> OpeningState:
        """Return how the opening of a file stands. Raises UnknownFile."""
        self.record(file_id)
        running = self._openings.get(file_id)
        return OpeningState(CLOSED) if running is None else running.state

    def opened(self, file_id: str) -> OpenedFile:
        """Return an open file; one that made room for others is opened again. Raises UnknownFile or FileNotOpen."""
        until_s = time.monotonic() + REOPENING_WAIT_S
        while (found := self._take(file_id)) is None:
            opening = self._reopening(file_id)
            left_s = until_s - time.monotonic()
            if opening is None or left_s <= 0:
                raise FileNotOpen(self.state(file_id).error or "this file is not open yet")
            opening.wait(left_s)
        return found

    def remove(self, file_id: str) -> None:
        """Close an upload and remove its file. Raises BadInputError for a file that is not ours to remove."""
        record = self.record(file_id)
        if record.origin != UPLOAD:
            raise BadInputError("only uploads can be removed here")
        self._forget(record)
        if Path(record.path).exists():
            raise BadInputError(f"cannot remove {shown(Path(record.path))}: its folder cannot be written to")
        self._remembered.remove(file_id)

    def capacity_bytes(self, file_id: str, device: int) -> int | None:
        """Return the memory of a device as the job that wrote the file told it, None where it came another way."""
        record = self.record(file_id)
        for job in self._live.jobs() if record.job_id is not None else ():
            for rank in job.ranks if job.id == record.job_id else ():
                if rank.rank == record.rank:
                    return next((info.total_bytes for info in rank.devices if info.device == device), None)
        return None

    def job_names(self) -> dict[str, str]:
        """Return the names of the jobs, by id."""
        return {job.id: job.name for job in self._live.jobs()}

    def close(self) -> None:
        """Cancel what is being opened."""
        for running in list(self._openings.values()):
            running.cancel()

    def _open(
        self, record: FileRecord, progress: Callable[[Progress], None], cancelled: Callable[[], bool]
    ) -> TracedSnapshot:
        path = Path(record.path)
        try:
            found = path.stat()
        except OSError as error:
            raise BadInputError(f"{shown(path)} cannot be read any more: {error.strerror}") from None
        if (found.st_size, found.st_mtime_ns) != (record.size_bytes, record.changed_ns):
            raise BadInputError(f"{shown(path)} was changed since it was named here; name it again with vramscope open")
        return open_traced(path, cache=self._cache, progress=progress, cancelled=cancelled)

    def _keep(self, file_id: str, traced: TracedSnapshot) -> None:
        opened = OpenedFile(traced)
        with self._lock:
            if file_id not in self._openings:
                return  # It was forgotten meanwhile.
            self._opened[file_id] = opened
            while len(self._opened) > MOST_OPEN:
                self._opened.popitem(last=False)

    def _reopening(self, file_id: str) -> Opening | None:
        """Return the opening of a file that has been open before, begun now where nobody else has; else None."""
        if self.state(file_id).state == OPEN:
            self.start(file_id)
        opening = self._openings.get(file_id)
        return opening if opening is not None and opening.is_again and opening.state.state in (*RUNNING, OPEN) else None

    def _take(self, file_id: str) -> OpenedFile | None:
        with self._lock:
            found = self._opened.get(file_id)
            if found is not None:
                self._opened.move_to_end(file_id)
            return found

    def _forget(self, record: FileRecord) -> None:
        self.cancel(record.id)
        with self._lock:
            self._openings.pop(record.id, None)
            self._opened.pop(record.id, None)
        path = Path(record.path)
        if record.origin == UPLOAD and self.uploads.owns(path):
            # In a folder that cannot be written to it stays, and the limit of all uploads counts it.
            with contextlib.suppress(OSError):
                path.unlink()

    def _dump_record(self, dump: DumpInfo) -> FileRecord | None:
        """Return the record of a job's dump, None where it is gone or lies (through a link, say) outside the folder."""
        path = Path(dump.path).resolve()
        try:
            if not path.is_relative_to(self._dumps_folder) or not path.is_file():
                return None
            return record_of(path, path.name, JOB, job_id=dump.job_id, rank=dump.rank)
        except OSError:
            return None


def listing(files: SnapshotFiles) -> list[dict[str, Any]]:
    """Return the files as the pages list them."""
    names = files.job_names()
    return [
        {
            "file": record.id,
            "name": record.name,
            "origin": record.origin,
            "job": record.job_id,
            "job_name": None if record.job_id is None else names.get(record.job_id),
            "rank": record.rank,
            "time_unix_us": record.changed_ns // 1000,
            "bytes": record.size_bytes,
            "state": files.state(record.id).state,
        }
        for record in files.records()
    ]
