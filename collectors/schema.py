"""The tables of the history, its version, and the packing of points into rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collectors.rollup import METRIC_COUNT, Points, join
from vramscope.errors import BadInputError
from vramscope.records import HISTORY

SCHEMA_VERSION = 1

# Level 0 holds samples, a row at the time of its first sample and spanning less than a second; the others a row for each point.
RAW = 0
RAW_ROW_SPAN_US = 1_000_000

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, run_id TEXT NOT NULL, world_size INTEGER NOT NULL, simulated INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE ranks (
    job_id TEXT NOT NULL, rank INTEGER NOT NULL, info TEXT NOT NULL, ended_unix_us INTEGER,
    peer_pid INTEGER NOT NULL, peer_start INTEGER, PRIMARY KEY (job_id, rank)
) WITHOUT ROWID;
CREATE TABLE series (
    id INTEGER PRIMARY KEY, job_id TEXT NOT NULL, rank INTEGER NOT NULL, device INTEGER NOT NULL,
    last_unix_us INTEGER NOT NULL, stats TEXT NOT NULL, UNIQUE (job_id, rank, device)
);
CREATE TABLE points (
    series INTEGER NOT NULL, level_us INTEGER NOT NULL, time_unix_us INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (series, level_us, time_unix_us)
) WITHOUT ROWID;
CREATE TABLE marks (
    job_id TEXT NOT NULL, rank INTEGER NOT NULL, time_unix_us INTEGER NOT NULL, kind TEXT NOT NULL, label TEXT NOT NULL,
    device INTEGER, lasting INTEGER NOT NULL
);
CREATE INDEX marks_by_time ON marks (job_id, rank, time_unix_us);
CREATE TABLE maps (series INTEGER PRIMARY KEY, time_unix_us INTEGER NOT NULL, frame BLOB NOT NULL);
CREATE TABLE dumps (
    id TEXT PRIMARY KEY, job_id TEXT NOT NULL, rank INTEGER NOT NULL, time_unix_us INTEGER NOT NULL, path TEXT NOT NULL,
    file_bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE readings (uuid TEXT PRIMARY KEY, reading TEXT NOT NULL) WITHOUT ROWID;
"""

META = {"version": str(SCHEMA_VERSION), "metrics": ",".join(HISTORY)}


def has_tables(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has this version's tables, False where it has none at all: it was only just created.

    Raises BadInputError for any other file, and sqlite3.OperationalError where it cannot be read now.
    """
    advice = f"move it away to start a new history: mv {path} {path}.old"
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        found = dict(connection.execute("SELECT key, value FROM meta")) if "meta" in tables else {}
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        raise BadInputError(f"{path} cannot be read as a history ({error}); {advice}") from None
    if tables and found != META:
        raise BadInputError(
            f"{path} is not this vramscope's history (it has version {found.get('version', 'unknown')}, "
            f"and this one reads {SCHEMA_VERSION}); {advice}"
        )
    return bool(tables)


def pack_samples(samples: Points) -> bytes:
    """Return samples as the data of a raw row: for each its time and its values, as doubles (exact up to 2**53)."""
    return np.column_stack([samples.time_unix_us.astype("<f8"), samples.low]).astype("<f8").tobytes()


def unpack_samples(rows: Sequence[bytes]) -> Points:
    """Return the samples of raw rows that follow each other."""
    table = np.frombuffer(b"".join(rows), "<f8").reshape(-1, 1 + METRIC_COUNT)
    values = table[:, 1:]
    return Points(table[:, 0].astype(np.int64), values, values)


def pack_point(low: np.ndarray, high: np.ndarray) -> bytes:
    """Return the data of a rollup's row: its lows, then its highs, as doubles."""
    return low.astype("<f8").tobytes() + high.astype("<f8").tobytes()


def unpack_points(times: Sequence[int], rows: Sequence[bytes]) -> Points:
    """Return the points of a rollup's rows."""
    table = np.frombuffer(b"".join(rows), "<f8").reshape(-1, 2, METRIC_COUNT)
    return Points(np.array(times, np.int64), table[:, 0], table[:, 1])


def read_points(connection: sqlite3.Connection, series: int, level_us: int, from_us: int, to_us: int) -> Points:
    """Return the points of one level whose rows begin in the range, both ends included."""
    rows = connection.execute(
        "SELECT time_unix_us, data FROM points WHERE series = ? AND level_us = ? AND time_unix_us BETWEEN ? AND ?"
        " ORDER BY time_unix_us",
        (series, level_us, from_us, to_us),
    ).fetchall()
    if not rows:
        return join([])
    times, data = zip(*rows, strict=True)
    return unpack_samples(data) if level_us == RAW else unpack_points(times, data)
