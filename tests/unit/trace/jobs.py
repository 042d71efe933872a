"""Runs random programs on the simulated allocator and keeps its state on the way: the truth that a trace is held against."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.allocator_traces import Operation, Simulation
from vramscope.allocator import PoolId, Settings
from vramscope.columns import DeviceMap, from_segments
from vramscope.snapshot.build import build_snapshot
from vramscope.trace.build import trace_of
from vramscope.trace.columns import DeviceTrace
from vramscope.units import GIB

STREAMS = (0, 0x7F12_3456_0000, 5)
POOLS: tuple[PoolId, ...] = ((0, 1), (3, 0))


@dataclass(frozen=True)
class Job:
    """What a job left: its snapshot as PyTorch writes it, and its state and counters after each operation by its events so far."""

    content: dict[str, Any]
    states: dict[int, DeviceMap]
    stats: dict[int, dict[str, Any]]

    @property
    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.content["device_traces"][0]
        return found

    def kept(self, last: int | None) -> dict[str, Any]:
        """Return the snapshot with a ring that kept no more than the ``last`` events; None is all of them."""
        content = copy.copy(self.content)
        content["device_traces"] = [self.events if last is None else self.events[len(self.events) - last :]]
        return content


def job(program: list[Operation], settings: Settings, *, pools: Sequence[Mapping[str, bool]] = ()) -> Job:
    """Run a program, whose last operation is the moment of the snapshot; ``pools`` are the options of each."""
    simulation = Simulation(settings, streams=STREAMS, pools=POOLS[: len(pools)], pool_options=pools)
    states, stats = {}, {}
    for action, *arguments in [["busy", False], *program]:
        getattr(simulation, action)(*arguments)
        states[len(simulation.events)] = from_segments(simulation.allocator.segments(), device=0)
        stats[len(simulation.events)] = simulation.allocator.memory_stats()
    return Job(simulation.allocator.snapshot(), states, stats)


def traced_device(content: dict[str, Any]) -> DeviceTrace:
    """Return the trace of device 0 of a snapshot, which is left as it is."""
    snapshot = build_snapshot(copy.copy(content), container="", file_bytes=GIB, progress=lambda done, total: None)
    return trace_of(snapshot, snapshot.devices[0])
