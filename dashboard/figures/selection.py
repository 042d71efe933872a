"""Which job, rank and GPU the page shows: from what was wished for and what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

from vramscope.records import JobInfo, RankInfo

# More than this many buttons do not fit into the header; a menu does.
MOST_BUTTONS = 8


@dataclass(frozen=True)
class Selection:
    """What is shown, or wished for; None means "whichever there is"."""

    job: str | None = None
    rank: int | None = None
    device: int | None = None


@dataclass(frozen=True)
class Choices:
    """The selection that can be shown, and what each picker offers as (value, label)."""

    selection: Selection
    jobs: tuple[tuple[str, str], ...] = ()
    ranks: tuple[tuple[int, str], ...] = ()
    devices: tuple[tuple[int, str], ...] = ()
    simulated: bool = False


def from_search(search: str | None) -> Selection:
    """Return the selection in a URL's query (``?job=…&rank=…&gpu=…``); what cannot be read is left open."""
    found = parse_qs((search or "").removeprefix("?"))

    def number(name: str) -> int | None:
        text = found.get(name, [""])[0]
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    return Selection(found.get("job", [None])[0], number("rank"), number("gpu"))


def resolve(jobs: Sequence[JobInfo], wished: Selection) -> Choices:
    """Return the nearest selection to ``wished`` that exists: an unknown job, rank or device gives way to the first."""
    if not jobs:
        return Choices(Selection())
    ordered = sorted(jobs, key=lambda job: (job.ended, -started_unix_us(job)))
    job = next((job for job in ordered if job.id == wished.job), ordered[0])
    if job.id != wished.job:
        wished = replace(wished, rank=None, device=None) if wished.job else wished
    # A rank without a device yet still counts: the page says that it is waiting for CUDA.
    ranks = sorted(job.ranks, key=lambda rank: rank.rank)
    with_devices = [rank for rank in ranks if rank.devices] or ranks
    rank = next((rank for rank in ranks if rank.rank == wished.rank), with_devices[0] if with_devices else None)
    devices = sorted({device.device for device in rank.devices}) if rank else []
    device = wished.device if wished.device in devices else (devices[0] if devices else None)
    return Choices(
        Selection(job.id, rank.rank if rank else None, device),
        tuple((found.id, job_label(found)) for found in ordered),
        tuple((found.rank, str(found.rank)) for found in ranks),
        tuple((number, str(number)) for number in devices),
        job.simulated,
    )


def find_rank(jobs: Sequence[JobInfo], selection: Selection) -> tuple[JobInfo, RankInfo] | None:
    """Return the job and the rank of ``selection``, or None where they are not known."""
    for job in jobs:
        if job.id == selection.job:
            for rank in job.ranks:
                if rank.rank == selection.rank:
                    return job, rank
    return None


def job_label(job: JobInfo) -> str:
    """Return "name · 8 ranks · host · ended"."""
    count = max(job.world_size, len(job.ranks))
    hosts = sorted({rank.host for rank in job.ranks})
    parts = [
        job.name,
        f"{count} ranks" if count != 1 else "1 rank",
        ", ".join(hosts[:2]) + (" …" if len(hosts) > 2 else ""),
    ]
    if job.ended:
        parts.append("ended")
    return " · ".join(part for part in parts if part)


def started_unix_us(job: JobInfo) -> int:
    """Return when the last of the job's ranks started."""
    return max((rank.started_unix_us for rank in job.ranks), default=0)
