"""Keeps the history while it can be written: when the disk is full or read-only, collecting goes on and it is tried again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from collectors import history
from collectors.changes import Changes
from collectors.jobs import Jobs
from collectors.store import Store
from vramscope.errors import BadInputError, one_line
from vramscope.records import DumpInfo

RETRY_US = 10_000_000


class Keeper:
    """The store, or the reason why there is none at the moment (``message``)."""

    def __init__(self, path: Path, *, cap_bytes: int) -> None:
        """Open the store. Raises BadInputError where another version wrote it: a collector must not start over it."""
        self._path = path
        self._cap_bytes = cap_bytes
        self._store: Store | None = None
        self._retry_us = 0
        self.message: str | None = None
        try:
            self._store = self._open()
        except sqlite3.Error as error:
            self._failed(error)

    def load(self, jobs: Jobs) -> list[DumpInfo]:
        """Hand what an earlier collector knew to ``jobs``; returns its dumps.

        Raises BadInputError where the file is damaged: collecting on would add to what cannot be read.
        """
        if self._store is None:
            return []
        try:
            return self._load(jobs)
        except sqlite3.OperationalError as error:
            self._failed(error)
            return []
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise BadInputError(
                f"{self._path} is damaged ({one_line(error)}); move it away to start a new history: mv {self._path} {self._path}.old"
            ) from None

    def _load(self, jobs: Jobs) -> list[DumpInfo]:
        connection = history.open_history(self._path)
        try:
            processes, newest_us = history.read_processes(connection), history.read_newest(connection)
            run_ids = history.read_run_ids(connection)
            for job in history.read_jobs(connection):
                jobs.load(job, run_ids[job.id], processes, newest_us)
            return history.read_dumps(connection, None)
        finally:
            connection.close()

    def flush(self, jobs: Jobs, changes: Changes, now_us: int) -> None:
        """Write ``changes``. Where that fails they are lost to the history, and the store is opened anew later."""
        if self._store is not None and not self._path.exists():
            # Removed from under us: SQLite would go on writing to what nobody can open.
            self.close()
            self._retry_us = 0
        if self._store is None and now_us < self._retry_us:
            return
        self._retry_us = now_us + RETRY_US
        try:
            if self._store is None:
                self._store = self._open()
                jobs.keep_everything()
            jobs.forget(self._store.flush(changes, now_us))
        except (sqlite3.Error, BadInputError) as error:
            self._failed(error)
        else:
            self.message = None

    def used_bytes(self) -> int | None:
        """Return the bytes in use, or None while nothing can be kept."""
        try:
            return None if self._store is None else self._store.used_bytes()
        except sqlite3.Error as error:
            self._failed(error)
            return None

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _open(self) -> Store:
        return Store(self._path, cap_bytes=self._cap_bytes)

    def _failed(self, error: Exception) -> None:
        self.close()
        self.message = f"history is not kept: {error} ({self._path}); tried again every {RETRY_US // 1_000_000} s"
