"""A job and its ranks as the collector holds them: what was announced, whether the agent is here, and each device's series."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from collectors.announce import JobKey, normal_uuid
from collectors.series import Series
from vramscope.records import JobInfo, RankInfo


@dataclass
class Rank:
    """One process of a job. ``connection`` is None while its agent is away, ``disconnected_us`` since when."""

    info: RankInfo
    peer_pid: int
    peer_start: int | None
    connection: int | None = None
    disconnected_us: int | None = None
    seen_by_us: bool = True
    agent: dict[str, int | float] = field(default_factory=dict)
    series: dict[int, Series] = field(default_factory=dict)
    lasting_step_us: int = 0

    @property
    def ended(self) -> bool:
        return self.info.ended_unix_us is not None

    def same_process(self, info: RankInfo) -> bool:
        """Return whether ``info`` was announced by the process of this rank."""
        return (self.info.pid, self.info.started_unix_us) == (info.pid, info.started_unix_us)

    def continue_from(self, before: Rank) -> None:
        """Go on with the history of the same rank; with its figures and maps only if they are of the same process."""
        self.lasting_step_us = before.lasting_step_us
        if self.same_process(before.info):
            self.series, self.agent = before.series, before.agent
        else:
            self.series = {device: Series(series.newest_us) for device, series in before.series.items()}

    def note_devices(self) -> None:
        """Have a series for each device that was announced."""
        for device in self.info.devices:
            self.series.setdefault(device.device, Series())

    def uuid(self, device: int) -> str | None:
        """Return the GPU's UUID in the form that readings are kept by, or None where it cannot be told."""
        found = next((one.uuid for one in self.info.devices if one.device == device), None)
        return None if found is None else normal_uuid(found)


@dataclass
class Job:
    """A job and the ranks that were seen of it."""

    id: str
    key: JobKey
    simulated: bool
    ranks: dict[int, Rank] = field(default_factory=dict)

    def record(self) -> JobInfo:
        infos = tuple(self.ranks[rank].info for rank in sorted(self.ranks))
        return JobInfo(self.id, self.key.name, self.key.world_size, self.simulated, infos)

    def ended_us(self) -> int | None:
        """Return when the last rank ended, or None while one runs."""
        moments = [rank.info.ended_unix_us for rank in self.ranks.values()]
        return None if None in moments else max((m for m in moments if m is not None), default=0)

    def find(self, device: int, rank: int | None) -> tuple[Rank, Series] | None:
        """Return one device of one rank (None: the lowest that has it), or None where it is not known."""
        for number in sorted(self.ranks):
            found = self.ranks[number]
            if rank in (None, number) and device in found.series:
                return found, found.series[device]
        return None


def reserved_by_uuid(jobs: Iterable[Job]) -> dict[str, int]:
    """Return what all ranks that run have reserved on each GPU, by its UUID."""
    found: dict[str, int] = {}
    for job in jobs:
        for rank in job.ranks.values():
            for device, series in rank.series.items() if not rank.ended else ():
                uuid = rank.uuid(device)
                if uuid is not None:
                    found[uuid] = found.get(uuid, 0) + (series.counters.get("reserved_bytes") or 0)
    return found
