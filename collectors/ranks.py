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


def reserved_by_others(jobs: Iterable[Job], own: Rank, device: int) -> int | None:
    """Return what other ranks that run on the same GPU have reserved; None where the GPU cannot be told."""
    uuid = own.uuid(device)
    if uuid is None:
        return None
    return sum(
        series.counters.get("reserved_bytes") or 0
        for job in jobs
        for rank in job.ranks.values()
        if rank is not own and not rank.ended
        for number, series in rank.series.items()
        if rank.uuid(number) == uuid
    )
