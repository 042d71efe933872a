"""Gathers what the store must keep, between two flushes, from jobs that change. Pure."""

from __future__ import annotations

from collectors.changes import Changes, SeriesKey
from collectors.encoding import to_json
from collectors.ranks import Job, Rank
from vramscope.records import DumpInfo, Mark

LASTING_STEP_US = 60_000_000


class Ledger:
    """Each method notes one change; ``take`` hands them all over."""

    def __init__(self) -> None:
        self._changes = Changes()

    def take(self) -> Changes:
        """Return what was noted, and begin anew."""
        changes, self._changes = self._changes, Changes()
        return changes

    def job(self, job: Job) -> None:
        self._changes.jobs[job.id] = (*job.key, job.simulated)

    def rank(self, job: Job, rank: Rank) -> None:
        row = (to_json(rank.info), rank.info.ended_unix_us, rank.peer_pid, rank.peer_start)
        self._changes.ranks[job.id, rank.info.rank] = row

    def map(self, job: Job, rank: Rank, device: int) -> None:
        """Have the newest map of a device kept, if there is one."""
        series = rank.series[device]
        if series.map is not None and series.map_time_us is not None:
            key = SeriesKey(job.id, rank.info.rank, device)
            self._changes.maps[key] = (series.map_time_us, series.map_frame({"kind": "map"}))

    def mark(self, job: Job, rank: Rank, mark: Mark) -> None:
        """Have a mark kept; of steps one a minute lasts, because there may be hundreds."""
        lasting = mark.kind != "step" or mark.time_unix_us - rank.lasting_step_us >= LASTING_STEP_US
        if mark.kind == "step" and lasting:
            rank.lasting_step_us = mark.time_unix_us
        self._changes.marks.append((job.id, mark, lasting))

    def dump(self, dump: DumpInfo) -> None:
        self._changes.dumps.append(dump)
