"""The jobs that agents announce, as a state machine: frames and moments in, what the store must keep out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from collectors.announce import (
    Announcement,
    JobKey,
    read_agent,
    read_devices,
    read_hello,
    read_notes,
    text,
    uses_expandable_segments,
    whole,
    whole_or_none,
)
from collectors.changes import Changes, SeriesKey
from collectors.encoding import to_json
from collectors.ledger import Ledger
from collectors.ranks import Job, Rank, reserved_by_uuid
from collectors.series import Series
from vramscope.agent.wire import Frame
from vramscope.errors import WireError
from vramscope.records import DeviceReading, DeviceStats, JobInfo, Mark

# An agent that lost its connection is back within this, if it lives.
GRACE_US = 3_000_000
GAP_US = 3_000_000
# How often it is looked whether processes still live whose agents are away.
LOOK_US = 1_000_000
# A kept map shows an ended job after a restart; a crash of the collector costs at most this much of its freshness.
KEEP_MAP_US = 30_000_000
# The maps of earlier jobs that ended are left to the store.
ENDED_MAPS_IN_MEMORY = 16

LOST = "lost (killed or crashed)"
ENDED_UNSEEN = "ended while no collector was running"
RETRYING = "this process runs, but its agent is disconnected and tries again; the figures are the last that arrived"

AGENT_MARKS = frozenset({"step", "retry", "oom", "user"})


class Jobs:
    """All jobs. ``readings`` are NVML's newest, by UUID.

    ``process_start(pid)`` tells whether a process lives (None: no), or raises OSError where it cannot be told now.
    """

    def __init__(self, *, process_start: Callable[[int], int | None]) -> None:
        self._process_start = process_start
        self._by_connection: dict[int, tuple[Job, Rank]] = {}
        # Ranks whose agents are away, though nobody knows yet that they ended.
        self._away: list[tuple[Job, Rank]] = []
        self._looked_us = 0
        self.by_id: dict[str, Job] = {}
        self.ledger = Ledger()
        self.readings: Mapping[str, DeviceReading] = {}
        self.dropped_samples = 0

    # Agents' frames

    def hello(self, connection: int, frame: Frame, peer_pid: int, now_us: int) -> None:
        """Take an agent's hello. Raises WireError where it cannot be read."""
        found = read_hello(frame.header)
        job = self._job(found)
        before = job.ranks.get(found.info.rank)
        rank = Rank(found.info, peer_pid, self._start_of(peer_pid), connection)
        if before is not None:
            if before.connection is not None:
                self._by_connection.pop(before.connection, None)
            self._away = [away for away in self._away if away[1] is not before]
            rank.continue_from(before)
        job.ranks[found.info.rank] = rank
        self._by_connection[connection] = (job, rank)
        rank.note_devices()
        if before is not None and rank.same_process(before.info):
            self._mark_gap(job, rank, now_us)
        else:
            self.ledger.mark(job, rank, Mark(now_us, found.info.rank, "start", f"rank {found.info.rank} attached"))
        self.ledger.job(job)
        self.ledger.rank(job, rank)

    def handle(self, connection: int, frame: Frame, now_us: int) -> SeriesKey | None:
        """Take one of an agent's later frames; returns the series where it was a map. Raises WireError as ``hello`` does.

        Kinds that this version does not know are ignored.
        """
        if connection not in self._by_connection:
            return None  # The process has connected anew since.
        job, rank = self._by_connection[connection]
        header = frame.header
        if frame.kind == "counters":
            self._counters(job, rank, header, now_us)
        elif frame.kind == "map":
            return self._map(job, rank, frame, now_us)
        elif frame.kind == "mark":
            self._agent_mark(job, rank, header, now_us)
        elif frame.kind == "notes":
            rank.info = replace(
                rank.info, notes=read_notes(header.get("notes")), devices=read_devices(header.get("devices"))
            )
            rank.note_devices()
            self.ledger.rank(job, rank)
        elif frame.kind == "bye":
            self._end(job, rank, now_us, text(header.get("reason", "exited")))
        return None

    def disconnected(self, connection: int, now_us: int) -> None:
        """The agent's connection is gone; whether its process is too shows after a grace."""
        if connection not in self._by_connection:
            return
        job, rank = self._by_connection.pop(connection)
        rank.connection = None
        rank.disconnected_us = now_us
        if not rank.ended:
            self._away.append((job, rank))
        for device in rank.series:
            self.ledger.map(job, rank, device)

    def tick(self, now_us: int) -> None:
        """Find out, once a second, what became of processes whose agents are away."""
        if now_us - self._looked_us < LOOK_US:
            return
        self._looked_us = now_us
        for job, rank in self._away:
            away_us = rank.disconnected_us
            if away_us is None or now_us - away_us < GRACE_US:
                continue
            if not self._lives(rank):
                self._end(job, rank, away_us, LOST if rank.seen_by_us else ENDED_UNSEEN)
            elif RETRYING not in rank.info.notes:
                rank.info = replace(rank.info, notes=(*rank.info.notes, RETRYING))
                self.ledger.rank(job, rank)
        self._away = [(job, rank) for job, rank in self._away if not rank.ended]

    # What others ask

    def find(self, job_id: str, device: int, rank: int | None) -> tuple[Job, Rank, Series] | None:
        """Return one device of one rank (None: the lowest that has it), or None where it is not known."""
        job = self.by_id.get(job_id)
        found = job.find(device, rank) if job is not None else None
        return None if job is None or found is None else (job, *found)

    def stats(self, job: Job, rank: Rank, device: int) -> DeviceStats:
        """Return the newest figures of one device of one rank."""
        return self._stats(job, rank, device, reserved_by_uuid(self.by_id.values()))

    def _stats(self, job: Job, rank: Rank, device: int, reserved: Mapping[str, int]) -> DeviceStats:
        series, uuid = rank.series[device], rank.uuid(device)
        own_bytes = 0 if rank.ended else series.counters.get("reserved_bytes") or 0
        return DeviceStats(
            job_id=job.id,
            rank=rank.info.rank,
            device=device,
            time_unix_us=series.newest_us,
            step=series.step,
            counters=series.counters,
            from_map=series.figures,
            map_time_unix_us=series.map_time_us,
            agent=rank.agent,
            nvml=None if uuid is None else self.readings.get(uuid),
            reserved_by_others_bytes=None if uuid is None else reserved.get(uuid, 0) - own_bytes,
            notes=rank.info.notes,
        )

    # The store's side

    def load(
        self,
        job: JobInfo,
        run_id: str,
        processes: Mapping[tuple[str, int], tuple[int, int | None]],
        newest_us: Mapping[tuple[str, int, int], int],
    ) -> None:
        """Take a job that an earlier collector knew.

        ``processes`` has (pid, start) by (job id, rank), ``newest_us`` the newest sample by (job id, rank, device).
        """
        loaded = Job(job.id, JobKey(job.name, run_id, job.world_size), job.simulated)
        for info in job.ranks:
            pid, start = processes[job.id, info.rank]
            own = {key[2]: time_us for key, time_us in newest_us.items() if key[:2] == (job.id, info.rank)}
            series = {device: Series(time_us) for device, time_us in own.items()}
            seen_us = max(own.values(), default=info.started_unix_us)
            rank = Rank(info, pid, start, disconnected_us=seen_us, seen_by_us=False, series=series)
            loaded.ranks[info.rank] = rank
            if not rank.ended:
                self._away.append((loaded, rank))
        self.by_id[job.id] = loaded

    def take_changes(self) -> Changes:
        """Return what the store must write since the last call."""
        changes = self.ledger.take()
        reserved = reserved_by_uuid(self.by_id.values())
        for job, rank, device, series in self._all_series():
            samples = series.take_samples()
            key = SeriesKey(job.id, rank.info.rank, device)
            if samples is not None:
                changes.samples[key] = samples
            if samples is not None or key in changes.maps:
                changes.stats[key] = (series.newest_us, to_json(self._stats(job, rank, device, reserved)))
        return changes

    def keep_everything(self) -> None:
        """Have all that is known written again: the store was away, or is a new one."""
        for job in self.by_id.values():
            self.ledger.job(job)
            for rank in job.ranks.values():
                self.ledger.rank(job, rank)
        self.keep_maps()

    def keep_maps(self) -> None:
        """Have every newest map written."""
        for job, rank, device, _series in self._all_series():
            self.ledger.map(job, rank, device)

    def forget(self, job_ids: Iterable[str]) -> None:
        """Drop jobs that the store no longer keeps."""
        for job_id in job_ids:
            self.by_id.pop(job_id, None)

    # Inside

    def _job(self, found: Announcement) -> Job:
        """Return the job of a hello: the first whose rank is free, is the same process, or is one that has gone."""
        attempt = 1
        while True:
            job_id = found.key.job_id(attempt)
            job = self.by_id.get(job_id)
            if job is None:
                self.by_id[job_id] = Job(job_id, found.key, found.simulated)
                return self.by_id[job_id]
            rank = job.ranks.get(found.info.rank)
            if rank is None or rank.ended or rank.same_process(found.info) or not self._lives(rank):
                return job
            attempt += 1

    def _lives(self, rank: Rank) -> bool:
        if rank.peer_start is None:
            return False
        try:
            return self._process_start(rank.peer_pid) == rank.peer_start
        except OSError:
            return True  # Shown as running for too long is better than a live job called dead.

    def _start_of(self, pid: int) -> int | None:
        try:
            return self._process_start(pid)
        except OSError:
            return None

    def _all_series(self) -> Iterator[tuple[Job, Rank, int, Series]]:
        for job in self.by_id.values():
            for rank in job.ranks.values():
                for device, series in rank.series.items():
                    yield job, rank, device, series

    def _counters(self, job: Job, rank: Rank, header: Mapping[str, Any], now_us: int) -> None:
        rank.agent = read_agent(header.get("agent"))
        time_us = whole(header.get("time_unix_us"), "time_unix_us")
        devices = header.get("devices")
        if not isinstance(devices, list) or not all(isinstance(one, dict) for one in devices):
            raise WireError("a job's counters are not a list of devices")
        for found in devices:
            device = whole(found.get("device"), "device")
            series = rank.series.get(device)
            # Counters can be on their way when the notes that name a new device are not yet here.
            if series is None:
                continue
            map_interval_us = int(rank.agent.get("map_interval_us", 0))
            uuid = rank.uuid(device)
            reading = None if uuid is None else self.readings.get(uuid)
            if series.add_counters(found, time_us, now_us, reading, map_interval_us):
                series.step = whole_or_none(header.get("step"), "step")
            else:
                self.dropped_samples += 1

    def _map(self, job: Job, rank: Rank, frame: Frame, now_us: int) -> SeriesKey | None:
        device = whole(frame.header.get("device"), "device")
        series = rank.series.get(device)
        if series is None:
            return None
        series.add_map(frame, now_us, expandable=uses_expandable_segments(rank.info.alloc_conf.values()))
        if now_us - series.map_kept_us >= KEEP_MAP_US:
            self.ledger.map(job, rank, device)
            series.map_kept_us = now_us
        return SeriesKey(job.id, rank.info.rank, device)

    def _agent_mark(self, job: Job, rank: Rank, header: Mapping[str, Any], now_us: int) -> None:
        kind = header.get("mark")
        if not isinstance(kind, str) or kind not in AGENT_MARKS:
            return
        time_us = min(whole(header.get("time_unix_us"), "time_unix_us"), now_us)
        device = whole_or_none(header.get("device"), "device")
        self.ledger.mark(job, rank, Mark(time_us, rank.info.rank, kind, text(header.get("label", "")), device))

    def _mark_gap(self, job: Job, rank: Rank, now_us: int) -> None:
        newest_us = max((series.newest_us for series in rank.series.values()), default=0)
        if newest_us and now_us - newest_us >= GAP_US:
            label = f"no figures for {(now_us - newest_us) / 1e6:.0f} s"
            self.ledger.mark(job, rank, Mark(now_us, rank.info.rank, "gap", label))

    def _end(self, job: Job, rank: Rank, ended_us: int, reason: str) -> None:
        rank.info = replace(
            rank.info,
            ended_unix_us=ended_us,
            end_reason=reason,
            notes=tuple(note for note in rank.info.notes if note != RETRYING),
        )
        self.ledger.mark(job, rank, Mark(ended_us, rank.info.rank, "end", f"rank {rank.info.rank}: {reason}"))
        self.ledger.rank(job, rank)
        self._free_maps()

    def _free_maps(self) -> None:
        ended = [(ended_us, job) for job in self.by_id.values() if (ended_us := job.ended_us()) is not None]
        for _ended_us, job in sorted(ended, key=lambda one: one[0])[:-ENDED_MAPS_IN_MEMORY]:
            for rank in job.ranks.values():
                for series in rank.series.values():
                    series.forget_map()
