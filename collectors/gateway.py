"""The dashboard's way to the collector and its history: implements vramscope.records.LiveData over both."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from collectors import history
from collectors.client import Client
from collectors.encoding import dump_from_json, job_from_json, reading_from_json, stats_from_json
from collectors.settings import store_path
from vramscope.columns import DeviceMap, from_frame
from vramscope.errors import VramscopeError
from vramscope.records import (
    CollectorStatus,
    DeviceReading,
    DeviceStats,
    DumpInfo,
    JobInfo,
    StackReply,
    Timeline,
)

# Longer than the collector lets a job take for each, so that its own line arrives.
STACK_TIMEOUT_S = 6.0
DUMP_TIMEOUT_S = 75.0

Answer = TypeVar("Answer")


class Gateway:
    """Asks the collector first, and its history where the collector is away or no longer holds what is asked.

    Safe for any number of threads. ``dump`` alone raises (VramscopeError, one line).
    """

    def __init__(self, runtime_folder: Path, state_folder: Path) -> None:
        self._client = Client(runtime_folder)
        self._history = _History(store_path(state_folder))

    def close(self) -> None:
        """Close the connection to the collector, and this thread's to the history."""
        self._client.close()
        self._history.close()

    def status(self) -> CollectorStatus:
        try:
            found = self._result("status")
        except VramscopeError as error:
            problem = self._history.problem()
            return CollectorStatus(False, (str(error), *([problem] if problem else [])))
        return CollectorStatus(True, tuple(found["messages"]), bool(found["nvml_available"]), found)

    def jobs(self) -> list[JobInfo]:
        """Return the jobs, running ones first, then by their start, the newest first."""
        try:
            jobs = [job_from_json(job) for job in self._result("jobs")["jobs"]]
        except VramscopeError:
            jobs = self._history.ask(history.read_jobs) or []
        return sorted(jobs, key=lambda job: (job.ended, -max((r.started_unix_us for r in job.ranks), default=0)))

    def stats(self, job_id: str, device: int, rank: int | None = None) -> DeviceStats | None:
        try:
            return stats_from_json(self._result("stats", job_id=job_id, device=device, rank=rank))
        except VramscopeError:
            return self._of_series(
                job_id, device, rank, lambda connection, found: history.read_stats(connection, found[0])
            )

    def device_map(
        self, job_id: str, device: int, rank: int | None = None, *, max_age_s: float = 0.25
    ) -> DeviceMap | None:
        params = {"job_id": job_id, "device": device, "rank": rank, "max_age_us": int(max_age_s * 1e6)}
        try:
            return from_frame(self._client.call("map", params))
        except VramscopeError:
            return self._of_series(job_id, device, rank, self._history.newest_map)

    def timeline(
        self,
        job_id: str,
        device: int,
        rank: int | None = None,
        *,
        from_unix_us: int | None,
        to_unix_us: int | None,
        points: int,
    ) -> Timeline | None:
        def read(connection: sqlite3.Connection, found: tuple[int, int]) -> Timeline:
            series, own_rank = found
            return history.read_timeline(
                connection,
                series,
                job_id,
                own_rank,
                device,
                from_unix_us=from_unix_us,
                to_unix_us=to_unix_us,
                points=max(2, points),
            )

        return self._of_series(job_id, device, rank, read)

    def readings(self) -> list[DeviceReading]:
        try:
            return [reading_from_json(reading) for reading in self._result("readings")["readings"]]
        except VramscopeError:
            return self._history.ask(history.read_readings) or []

    def stack(self, job_id: str, device: int, rank: int | None, address: int) -> StackReply:
        params = {"job_id": job_id, "device": device, "rank": rank, "address": address}
        try:
            found = self._client.call("stack", params, timeout_s=STACK_TIMEOUT_S).header["result"]
        except VramscopeError as error:
            return StackReply(reason=str(error))
        frames = tuple((str(file), int(line), str(name)) for file, line, name in found["frames"])
        return StackReply(frames, found["reason"])

    def dump(self, job_id: str, rank: int | None = None) -> DumpInfo:
        """Ask the job to write a snapshot. Raises VramscopeError with one line when it cannot."""
        reply = self._client.call("dump", {"job_id": job_id, "rank": rank}, timeout_s=DUMP_TIMEOUT_S)
        return dump_from_json(reply.header["result"])

    def dumps(self, job_id: str | None = None) -> list[DumpInfo]:
        try:
            return [dump_from_json(dump) for dump in self._result("dumps", job_id=job_id)["dumps"]]
        except VramscopeError:
            return self._history.ask(lambda connection: history.read_dumps(connection, job_id)) or []

    def _result(self, method: str, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._client.call(method, params).header["result"]
        return result

    def _of_series(
        self,
        job_id: str,
        device: int,
        rank: int | None,
        read: Callable[[sqlite3.Connection, tuple[int, int]], Answer | None],
    ) -> Answer | None:
        def find(connection: sqlite3.Connection) -> Answer | None:
            found = history.find_series(connection, job_id, device, rank)
            return None if found is None else read(connection, found)

        return self._history.ask(find)


class _History:
    """A reading connection for each thread, opened when the file is there and again when it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._maps: dict[int, tuple[int, DeviceMap]] = {}

    def ask(self, read: Callable[[sqlite3.Connection], Answer]) -> Answer | None:
        """Return what ``read`` finds, or None where there is no history, it is busy, or another version wrote it."""
        try:
            return read(self._connection())
        except (sqlite3.Error, OSError, VramscopeError):
            return None

    def close(self) -> None:
        if getattr(self._local, "identity", None) is not None:
            self._local.connection.close()
            self._local.identity = None

    def problem(self) -> str | None:
        """Return the line that says why the history cannot be read; None where it can, or where there is none yet."""
        try:
            self._connection()
        except (VramscopeError, sqlite3.Error) as error:
            return str(error)
        except OSError:
            return None
        return None

    def newest_map(self, connection: sqlite3.Connection, found: tuple[int, int]) -> DeviceMap | None:
        """Return the stored map of a series, decoded once: the page of an ended job asks for it again and again."""
        series = found[0]
        time_us = history.read_map_time(connection, series)
        if time_us is None:
            return None
        kept = self._maps.get(series)
        if kept is None or kept[0] != time_us:
            fresh = history.read_map(connection, series)
            if fresh is None:
                return None
            kept = self._maps[series] = (time_us, fresh)
        return kept[1]

    def _connection(self) -> sqlite3.Connection:
        found = os.stat(self._path)
        identity = (found.st_dev, found.st_ino)
        if getattr(self._local, "identity", None) != identity:
            self._local.connection = history.open_history(self._path)
            self._local.identity = identity
            self._maps.clear()
        connection: sqlite3.Connection = self._local.connection
        return connection
