"""What the collector's state machine hands to the store: rows that were added or changed since the last flush."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from collectors.rollup import Points
from vramscope.records import DumpInfo, Mark


class SeriesKey(NamedTuple):
    """One device of one rank: what a line of the timeline belongs to."""

    job_id: str
    rank: int
    device: int


@dataclass
class Changes:
    """What happened since the last flush, in the order of its tables. Rows replace those with the same key."""

    jobs: dict[str, tuple[str, str, int, bool]] = field(default_factory=dict)
    ranks: dict[tuple[str, int], tuple[dict[str, Any], int | None, int, int | None]] = field(default_factory=dict)
    stats: dict[SeriesKey, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    samples: dict[SeriesKey, Points] = field(default_factory=dict)
    marks: list[tuple[str, Mark, bool]] = field(default_factory=list)
    maps: dict[SeriesKey, tuple[int, bytes]] = field(default_factory=dict)
    dumps: list[DumpInfo] = field(default_factory=list)
    readings: dict[str, dict[str, Any]] = field(default_factory=dict)
