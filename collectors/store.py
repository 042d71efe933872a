"""Writes the history: one transaction a second into SQLite (WAL), kept under a cap. Used by one thread of the collector."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path

from collectors.changes import Changes, SeriesKey
from collectors.prune import Pruner, used_bytes
from collectors.rollup import EMPTY, LEVELS_US, Points, Rollup, by_span
from collectors.schema import META, RAW, RAW_ROW_SPAN_US, TABLES, has_tables, pack_point, pack_samples, unpack_points

PRUNE_INTERVAL_US = 10_000_000


class Store:
    """The history file, open for writing. Anything sqlite3 raises means: close, go on live, and open again later.

    After kill -9 the file is whole and lacks at most what was not flushed, because each flush is one transaction.
    """

    def __init__(self, path: Path, *, cap_bytes: int) -> None:
        """Open or create ``path`` (mode 0600). Raises BadInputError for another version, sqlite3.Error where it cannot write."""
        self._path = path
        self._connection = _open(path)
        self._series: dict[SeriesKey, int] = {}
        self._rollups: dict[int, Rollup] = {}
        self._pruner = Pruner(cap_bytes)
        self._pruned_us = 0

    def close(self) -> None:
        self._connection.close()

    def used_bytes(self) -> int:
        """Return the bytes of the pages in use, which is what the cap holds."""
        return used_bytes(self._connection)

    def flush(self, changes: Changes, now_us: int) -> list[str]:
        """Write ``changes`` in one transaction; every ten seconds also drop what is too old or over the cap.

        Returns the ids of the jobs that were dropped.
        """
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._write_jobs(connection, changes)
            self._write_series(connection, changes)
            self._write_points(connection, changes)
            self._write_rest(connection, changes)
        if now_us - self._pruned_us < PRUNE_INTERVAL_US:
            return []
        self._pruned_us = now_us
        dropped = self._pruner.prune(self._connection, now_us)
        if dropped:
            # A later series may get the id of one that went.
            self._series.clear()
            self._rollups.clear()
        return dropped

    def _write_jobs(self, connection: sqlite3.Connection, changes: Changes) -> None:
        connection.executemany(
            "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?)",
            [(job_id, *columns) for job_id, columns in changes.jobs.items()],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO ranks VALUES (?, ?, ?, ?, ?, ?)",
            [
                (job_id, rank, json.dumps(info), ended_us, peer_pid, peer_start)
                for (job_id, rank), (info, ended_us, peer_pid, peer_start) in changes.ranks.items()
            ],
        )

    def _write_series(self, connection: sqlite3.Connection, changes: Changes) -> None:
        connection.executemany(
            "INSERT INTO series (job_id, rank, device, last_unix_us, stats) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (job_id, rank, device) DO UPDATE SET last_unix_us = excluded.last_unix_us, stats = excluded.stats",
            [(*key, last_us, json.dumps(stats)) for key, (last_us, stats) in changes.stats.items()],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO maps VALUES (?, ?, ?)",
            [
                (self._series_id(key), time_us, zlib.compress(frame, level=1))
                for key, (time_us, frame) in changes.maps.items()
            ],
        )

    def _write_points(self, connection: sqlite3.Connection, changes: Changes) -> None:
        rows: list[tuple[int, int, int, bytes]] = []
        for key, samples in changes.samples.items():
            series = self._series_id(key)
            rows += [
                (series, RAW, int(one.time_unix_us[0]), pack_samples(one)) for one in by_span(samples, RAW_ROW_SPAN_US)
            ]
            for level_us, points in self._rollup(series).add(samples):
                rows += [
                    (series, level_us, time_us, pack_point(low, high))
                    for time_us, low, high in zip(points.time_unix_us.tolist(), points.low, points.high, strict=True)
                ]
        connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", rows)

    def _write_rest(self, connection: sqlite3.Connection, changes: Changes) -> None:
        connection.executemany(
            "INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (job_id, mark.rank, mark.time_unix_us, mark.kind, mark.label, mark.device, lasting)
                for job_id, mark, lasting in changes.marks
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO dumps VALUES (?, ?, ?, ?, ?, ?)",
            [(d.id, d.job_id, d.rank, d.time_unix_us, d.path, d.file_bytes) for d in changes.dumps],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO readings VALUES (?, ?)",
            [(uuid, json.dumps(reading)) for uuid, reading in changes.readings.items()],
        )

    def _series_id(self, key: SeriesKey) -> int:
        if key not in self._series:
            query = "SELECT id FROM series WHERE job_id = ? AND rank = ? AND device = ?"
            self._series[key] = self._connection.execute(query, key).fetchone()[0]
        return self._series[key]

    def _rollup(self, series: int) -> Rollup:
        """Return the rollup of a series, with the open points that an earlier collector left."""
        if series not in self._rollups:
            self._rollups[series] = Rollup({level_us: self._newest_point(series, level_us) for level_us in LEVELS_US})
        return self._rollups[series]

    def _newest_point(self, series: int, level_us: int) -> Points:
        row = self._connection.execute(
            "SELECT time_unix_us, data FROM points WHERE series = ? AND level_us = ? ORDER BY time_unix_us DESC LIMIT 1",
            (series, level_us),
        ).fetchone()
        return EMPTY if row is None else unpack_points([row[0]], [row[1]])


def _open(path: Path) -> sqlite3.Connection:
    # SQLite gives -wal and -shm the mode of the file, so that creating it first settles all three.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise sqlite3.OperationalError(error.strerror) from None
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    try:
        if not has_tables(connection, path):
            _create(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        # In WAL mode this loses nothing when the process dies, and at most the last commits when the machine does.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 16777216").fetchone()
        # A file system that is read-only shows only when something is to be written.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    inserts: Sequence[str] = [f"INSERT INTO meta VALUES ('{key}', '{value}');" for key, value in META.items()]
    connection.executescript("BEGIN;" + TABLES + "".join(inserts) + "COMMIT;")
