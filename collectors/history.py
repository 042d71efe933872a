"""Reads the history that the collector writes: jobs, last figures and maps, and timelines at the resolution a view needs."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from collectors.encoding import rank_from_json, reading_from_json, stats_from_json
from collectors.rollup import LEVELS_US, Points, roll_up, with_gaps
from collectors.schema import RAW, RAW_ROW_SPAN_US, has_tables, read_points
from vramscope.agent.wire import Decoder
from vramscope.columns import DeviceMap, from_frame
from vramscope.records import HISTORY, DeviceReading, DeviceStats, DumpInfo, JobInfo, Mark, RankInfo, Timeline

MARKS_CAP = 500
END_OF_TIME_US = 2**63 - 1

# Agents send counters at up to 10 Hz, so this is the least that lies between two samples.
SAMPLE_SPACING_US = 100_000
# An agent over its budget sends them once a second, so less than a few of these is no gap.
SLOW_SPACING_US = 1_000_000
# A level that has this many points for each one asked for is still read quickly, and thinned to minima and maxima.
OVERSAMPLING = 4


def open_history(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads. Raises sqlite3.Error where there is no file, BadInputError for another version."""
    connection = sqlite3.connect(f"file:{_uri_path(path)}?mode=ro", uri=True, timeout=1.0, isolation_level=None)
    try:
        if not has_tables(connection, path):
            raise sqlite3.OperationalError("the history is only just being created")
    except BaseException:
        connection.close()
        raise
    return connection


def _uri_path(path: Path) -> str:
    return path.absolute().as_uri().removeprefix("file://")


def read_jobs(connection: sqlite3.Connection) -> list[JobInfo]:
    """Return every job, in no particular order, as it was when the collector last wrote."""
    ranks: dict[str, list[RankInfo]] = {}
    for job_id, info in connection.execute("SELECT job_id, info FROM ranks ORDER BY job_id, rank"):
        ranks.setdefault(job_id, []).append(rank_from_json(json.loads(info)))
    rows = connection.execute("SELECT id, name, world_size, simulated FROM jobs")
    return [
        JobInfo(job_id, name, world_size, bool(simulated), tuple(ranks.get(job_id, ())))
        for job_id, name, world_size, simulated in rows
    ]


def read_processes(connection: sqlite3.Connection) -> dict[tuple[str, int], tuple[int, int | None]]:
    """Return (pid, start) of each rank's process, by (job id, rank), as ``peer.process_start`` gives them."""
    rows = connection.execute("SELECT job_id, rank, peer_pid, peer_start FROM ranks")
    return {(job_id, rank): (pid, start) for job_id, rank, pid, start in rows}


def read_newest(connection: sqlite3.Connection) -> dict[tuple[str, int, int], int]:
    """Return the moment of the newest sample, by (job id, rank, device)."""
    rows = connection.execute("SELECT job_id, rank, device, last_unix_us FROM series")
    return {(job_id, rank, device): newest_us for job_id, rank, device, newest_us in rows}


def read_run_ids(connection: sqlite3.Connection) -> dict[str, str]:
    """Return what each job announced as its run, by job id."""
    return dict(connection.execute("SELECT id, run_id FROM jobs"))


def find_series(connection: sqlite3.Connection, job_id: str, device: int, rank: int | None) -> tuple[int, int] | None:
    """Return (series, rank), where ``rank=None`` means the lowest that has the device; None where there is none."""
    row = connection.execute(
        "SELECT id, rank FROM series WHERE job_id = ? AND device = ? AND (? IS NULL OR rank = ?) ORDER BY rank LIMIT 1",
        (job_id, device, rank, rank),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def read_stats(connection: sqlite3.Connection, series: int) -> DeviceStats:
    """Return the newest figures of a series."""
    (text,) = connection.execute("SELECT stats FROM series WHERE id = ?", (series,)).fetchone()
    return stats_from_json(json.loads(text))


def read_map_time(connection: sqlite3.Connection, series: int) -> int | None:
    """Return the moment of the newest map that was kept, so that a caller need not read it again."""
    row = connection.execute("SELECT time_unix_us FROM maps WHERE series = ?", (series,)).fetchone()
    return None if row is None else row[0]


def read_map(connection: sqlite3.Connection, series: int) -> DeviceMap | None:
    """Return the newest map that was kept. Raises WireError where what was kept is not a map."""
    row = connection.execute("SELECT frame FROM maps WHERE series = ?", (series,)).fetchone()
    if row is None:
        return None
    frames = list(Decoder().feed(zlib.decompress(row[0])))
    return from_frame(frames[0])


def read_dumps(connection: sqlite3.Connection, job_id: str | None) -> list[DumpInfo]:
    """Return the snapshots that jobs wrote, the newest first."""
    rows = connection.execute(
        "SELECT id, job_id, rank, time_unix_us, path, file_bytes FROM dumps WHERE ? IS NULL OR job_id = ?"
        " ORDER BY time_unix_us DESC",
        (job_id, job_id),
    )
    return [DumpInfo(*row) for row in rows]


def read_readings(connection: sqlite3.Connection) -> list[DeviceReading]:
    """Return NVML's newest reading of each GPU."""
    rows = connection.execute("SELECT reading FROM readings ORDER BY uuid")
    return [reading_from_json(json.loads(text)) for (text,) in rows]


def read_timeline(
    connection: sqlite3.Connection,
    series: int,
    job_id: str,
    rank: int,
    device: int,
    *,
    from_unix_us: int | None,
    to_unix_us: int | None,
    points: int,
) -> Timeline:
    """Return a series' history in the range (None: as far as it goes) as at most about ``points`` points."""
    first_rows = _first_rows(connection, series)
    first_us, last_us = _extent(connection, series, first_rows)
    from_us = max(first_us, from_unix_us if from_unix_us is not None else first_us)
    to_us = min(last_us, to_unix_us if to_unix_us is not None else last_us)
    level_us = _level(first_rows, from_us, to_us, points)
    found, resolution_us = _thin(
        _read_range(connection, series, level_us, from_us, to_us), level_us, from_us, to_us, points
    )
    found = with_gaps(found, max(resolution_us, _spacing(found)))
    # Not cut to the samples: a rank attaches before its first one, and may end after its last.
    asked = (from_unix_us if from_unix_us is not None else 0, to_unix_us if to_unix_us is not None else END_OF_TIME_US)
    marks, left_out = _read_marks(connection, job_id, rank, device, *asked)
    return Timeline(
        time_unix_us=found.time_unix_us,
        low={name: np.ascontiguousarray(found.low[:, i]) for i, name in enumerate(HISTORY)},
        high={name: np.ascontiguousarray(found.high[:, i]) for i, name in enumerate(HISTORY)},
        resolution_us=resolution_us,
        marks=marks,
        marks_left_out=left_out,
        first_unix_us=first_us,
        last_unix_us=last_us,
    )


def _first_rows(connection: sqlite3.Connection, series: int) -> dict[int, int]:
    """Return the time of the first row of each level that has any, from the finest to the coarsest."""
    query = "SELECT min(time_unix_us) FROM points WHERE series = ? AND level_us = ?"
    found = {level_us: connection.execute(query, (series, level_us)).fetchone()[0] for level_us in (RAW, *LEVELS_US)}
    return {level_us: first_us for level_us, first_us in found.items() if first_us is not None}


def _extent(connection: sqlite3.Connection, series: int, first_rows: Mapping[int, int]) -> tuple[int, int]:
    """Return the moments of the first and the last sample, the first as exactly as it is still known."""
    (last_us,) = connection.execute("SELECT last_unix_us FROM series WHERE id = ?", (series,)).fetchone()
    known_us: int = last_us
    for level_us, first_us in first_rows.items():
        # A coarse point begins before the samples in it, so it counts only where it ends before finer ones begin.
        if first_us + level_us <= known_us:
            known_us = first_us
    return known_us, last_us


def _level(first_rows: Mapping[int, int], from_us: int, to_us: int, points: int) -> int:
    """Return the finest level that reaches back to the range's start without holding far too many points."""
    few_enough = [
        level_us
        for level_us in first_rows
        if (to_us - from_us) / (level_us or SAMPLE_SPACING_US) <= points * OVERSAMPLING
    ]
    for level_us in few_enough:
        if first_rows[level_us] <= from_us:
            return level_us
    return min(few_enough, key=first_rows.__getitem__, default=LEVELS_US[-1])


def _read_range(connection: sqlite3.Connection, series: int, level_us: int, from_us: int, to_us: int) -> Points:
    # A point belongs to a range that begins within its width.
    found = read_points(connection, series, level_us, from_us - (level_us or RAW_ROW_SPAN_US), to_us)
    time_us = found.time_unix_us
    inside = (time_us + max(level_us, 1) > from_us) & (time_us <= to_us)
    return found.pick(inside)


def _thin(found: Points, level_us: int, from_us: int, to_us: int, points: int) -> tuple[Points, int]:
    """Return at most about ``points`` points and their width; 0 for samples as they came."""
    if len(found.time_unix_us) <= points:
        return found, level_us
    # A width that depends on the range's length alone keeps the points in place while the view moves along.
    step_us = level_us or SAMPLE_SPACING_US
    width_us = -(-(to_us - from_us) // (points * step_us)) * step_us
    return roll_up(found, width_us), width_us


def _spacing(points: Points) -> int:
    """Return the usual distance of points, but not less than an agent may change to at any moment."""
    distances = np.diff(points.time_unix_us)
    return max(SLOW_SPACING_US, int(np.median(distances))) if len(distances) else SLOW_SPACING_US


def _read_marks(
    connection: sqlite3.Connection, job_id: str, rank: int, device: int, from_us: int, to_us: int
) -> tuple[tuple[Mark, ...], int]:
    rows = connection.execute(
        "SELECT time_unix_us, rank, kind, label, device FROM marks WHERE job_id = ? AND rank = ?"
        " AND time_unix_us BETWEEN ? AND ? AND (device IS NULL OR device = ?) ORDER BY time_unix_us",
        (job_id, rank, from_us, to_us, device),
    ).fetchall()
    marks = [Mark(*row) for row in rows]
    steps = [mark for mark in marks if mark.kind == "step"]
    others = _spread([mark for mark in marks if mark.kind != "step"], MARKS_CAP)
    kept = sorted([*others, *_spread(steps, MARKS_CAP - len(others))], key=lambda mark: mark.time_unix_us)
    return tuple(kept), len(marks) - len(kept)


def _spread(marks: Sequence[Mark], count: int) -> list[Mark]:
    """Return at most ``count`` of the marks, evenly chosen."""
    if len(marks) <= count:
        return list(marks)
    return [marks[i * len(marks) // count] for i in range(count)]
