"""Simulated GPUs and jobs without processes, pauses or an agent."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from vramscope.allocator import Allocator, parse_alloc_conf
from vramscope.demo.job import Job, Pace
from vramscope.demo.mirror import Mirror
from vramscope.units import GIB


@dataclass
class Bench:
    """A simulated GPU, its mirror and a job on it, with what the job marked and said."""

    allocator: Allocator
    mirror: Mirror
    job: Job
    marks: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def live_bytes(self) -> int:
        """The bytes of all storages that are alive, as the program asked for them (before rounding)."""
        return self.current("requested_bytes")

    def current(self, figure: str) -> int:
        """Return one of the allocator's figures, such as "allocated_bytes", now."""
        with self.mirror.settled() as allocator:
            return int(allocator.memory_stats()[figure]["all"]["current"])


def make_bench(
    capacity_bytes: int = GIB, *, alloc_conf: str = "", steps: int | None = None, pace: Pace | None = None
) -> Bench:
    marks: list[str] = []
    lines: list[str] = []
    allocator = Allocator(capacity_bytes, parse_alloc_conf(alloc_conf))
    job = Job(
        pace=pace or Pace(sleep=lambda seconds: None),
        attach=lambda model, optimizer: None,
        mark=marks.append,
        say=lines.append,
        capacity_bytes=capacity_bytes,
        steps=steps,
        small=True,
    )
    return Bench(allocator, Mirror(allocator, after_each=job.pace.storage), job, marks, lines)


@pytest.fixture
def bench() -> Bench:
    return make_bench()
