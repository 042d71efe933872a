"""What of the history goes first: by age, and by the cap on its size.

By age: samples after 15 minutes (with the step marks between the minutes), points of 1 s after 6 hours, of 10 s after
3 days; those of 60 s stay. Of ended jobs the newest 100 are kept.

By size, when over the cap: samples, then points of 1 s, of 10 s, of 60 s; in each of these those of ended jobs before those of
running ones, and the oldest first. Where that is not enough, whole ended jobs, the one that ended first before others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from collectors.rollup import LEVELS_US
from collectors.schema import RAW

RETENTION_US = {RAW: 15 * 60_000_000, 1_000_000: 6 * 3600_000_000, 10_000_000: 3 * 86_400_000_000}
ENDED_JOBS_KEPT = 100

# Deleting a little more than needed keeps the next flushes from deleting again.
TARGET_RATIO = 0.95
VACUUM_PAGES = 2000
# How much of a level's age goes in one step.
STEPS = 10

# Each ended job with the moment when its last rank ended; jobs with a rank that runs are not among them.
_ENDED_JOBS = """
SELECT job_id, max(ended_unix_us) AS ended FROM ranks GROUP BY job_id HAVING count(*) = count(ended_unix_us)
"""


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes of the file's pages that are in use."""
    pages, free, page_bytes = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page_bytes)


class Pruner:
    """Holds a history to its ages and its cap, each step in a transaction of its own so that readers never wait long."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap_bytes = cap_bytes

    def prune(self, connection: sqlite3.Connection, now_us: int) -> list[str]:
        """Delete what must go at ``now_us``. Returns the ids of the jobs that went as a whole."""
        for level_us, kept_us in RETENTION_US.items():
            _delete_points(connection, _all_series(connection), level_us, now_us - kept_us)
        connection.execute("DELETE FROM marks WHERE NOT lasting AND time_unix_us < ?", (now_us - RETENTION_US[RAW],))
        dropped = [
            row[0] for row in connection.execute(f"{_ENDED_JOBS} ORDER BY ended DESC LIMIT -1 OFFSET {ENDED_JOBS_KEPT}")
        ]
        for job_id in dropped:
            delete_job(connection, job_id)
        dropped += self._hold_cap(connection)
        # A little at a time: the file shrinks over the next minutes, and no flush waits long.
        connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
        return dropped

    def _hold_cap(self, connection: sqlite3.Connection) -> list[str]:
        if used_bytes(connection) <= self._cap_bytes:
            return []
        target_bytes = self._cap_bytes * TARGET_RATIO
        for series, level_us, cutoff_us in _steps(connection):
            _delete_points(connection, series, level_us, cutoff_us)
            if used_bytes(connection) <= target_bytes:
                return []
        dropped = []
        for job_id, _ended_us in connection.execute(f"{_ENDED_JOBS} ORDER BY ended").fetchall():
            delete_job(connection, job_id)
            dropped.append(job_id)
            if used_bytes(connection) <= target_bytes:
                break
        return dropped


def _steps(connection: sqlite3.Connection) -> Iterator[tuple[list[int], int, int]]:
    """Yield (series, level, time before which its points go), in the order of the rule by size."""
    ended = _ids(connection, f"SELECT id FROM series WHERE job_id IN (SELECT job_id FROM ({_ENDED_JOBS}))")
    running = [series for series in _all_series(connection) if series not in set(ended)]
    for level_us in (RAW, *LEVELS_US):
        for series in (ended, running):
            spans = [span for one in series if (span := _span(connection, one, level_us)) is not None]
            if not spans:
                continue
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            for step in range(1, STEPS + 1):
                yield series, level_us, first + (last + 1 - first) * step // STEPS


def _span(connection: sqlite3.Connection, series: int, level_us: int) -> tuple[int, int] | None:
    query = "SELECT min(time_unix_us), max(time_unix_us) FROM points WHERE series = ? AND level_us = ?"
    first, last = connection.execute(query, (series, level_us)).fetchone()
    return None if first is None else (first, last)


def _all_series(connection: sqlite3.Connection) -> list[int]:
    return _ids(connection, "SELECT id FROM series")


def _ids(connection: sqlite3.Connection, query: str) -> list[int]:
    return [row[0] for row in connection.execute(query)]


def _delete_points(connection: sqlite3.Connection, series: list[int], level_us: int, before_us: int) -> None:
    # One series at a time follows the key, so that nothing is scanned.
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "DELETE FROM points WHERE series = ? AND level_us = ? AND time_unix_us < ?",
            [(one, level_us, before_us) for one in series],
        )


def delete_job(connection: sqlite3.Connection, job_id: str) -> None:
    """Delete a job with all that belongs to it. Its dumps' files stay on disk: they are the user's."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for table in ("points", "maps"):
            connection.execute(
                f"DELETE FROM {table} WHERE series IN (SELECT id FROM series WHERE job_id = ?)", (job_id,)
            )
        for table in ("series", "ranks", "marks", "dumps"):
            connection.execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
        connection.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
