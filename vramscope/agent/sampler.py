"""Takes counters and maps from a source, encodes them as frames, and tells what each cost the job."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from vramscope.agent.maps import columns_of_device, tensor_columns
from vramscope.agent.source import DeviceDescription, Source
from vramscope.agent.tensors import TensorRegistry
from vramscope.agent.vocabulary import COUNTERS
from vramscope.agent.wire import encode

LONGEST_LABEL = 200
_NUMBER_MARKS = {"num_alloc_retries": ("retry", "allocation retry"), "num_ooms": ("oom", "out of memory")}


def unix_us() -> int:
    return time.time_ns() // 1000


class Taken(NamedTuple):
    """Frames, and what they cost: this thread's CPU time and ``waited_us``.

    ``pause_us`` is the wall time of the source's snapshot, which holds the GIL throughout, so that nothing else can run;
    ``waited_us`` is the part of it without CPU time.
    """

    frames: list[bytes]
    cost_us: float
    waited_us: float
    pause_us: float


class Sampler:
    """Samples one source. Its methods are not safe to call from two threads at once; the agent holds a lock."""

    def __init__(self, source: Source, registry: TensorRegistry) -> None:
        self._source = source
        self._registry = registry
        self.devices: Sequence[DeviceDescription] = ()
        self._device_memory: dict[int, tuple[int, int] | None] = {}
        self._numbers: dict[tuple[int, str], int] = {}

    def refresh(self) -> bool:
        """Look for devices and ask the driver for their memory; return whether the list of devices changed.

        Only for the agent's own thread, about once a second.
        """
        devices = list(self._source.devices()) if self._source.ready() else []
        self._device_memory = {found.device: self._source.device_memory(found.device) for found in devices}
        changed = devices != list(self.devices)
        self.devices = devices
        return changed

    @property
    def mappable(self) -> list[int]:
        """The devices that have a map: torch gives none of an allocator other than its own."""
        return [found.device for found in self.devices if found.backend in ("native", "simulated")]

    def counters(self, *, phase: str, step: int | None, agent: Mapping[str, Any]) -> list[bytes]:
        """Return a ``counters`` frame, and a ``mark`` frame for each device whose retries or OOMs grew."""
        now_us = unix_us()
        rows: list[dict[str, int | None]] = []
        marks: list[bytes] = []
        for found in self.devices:
            row = self._row(found.device)
            rows.append(row)
            marks += self._marks(row, now_us, step)
        header = {"kind": "counters", "time_unix_us": now_us, "step": step, "phase": phase, "devices": rows}
        return [encode({**header, "agent": agent}), *marks]

    def _row(self, device: int) -> dict[str, int | None]:
        stats = self._source.memory_stats(device)
        row = {"device": device, **{name: _pick(stats, path) for name, path in COUNTERS.items()}}
        row["device_free_bytes"], row["device_total_bytes"] = self._device_memory.get(device) or (None, None)
        return row

    def _marks(self, row: Mapping[str, int | None], now_us: int, step: int | None) -> Iterator[bytes]:
        device = row["device"]
        assert device is not None
        for name, (mark, label) in _NUMBER_MARKS.items():
            number = row[name]
            if number is None:
                continue
            grown = number - self._numbers.get((device, name), number)
            self._numbers[device, name] = number
            if grown > 0:
                yield mark_frame(mark, label if grown == 1 else f"{label} × {grown}", now_us, step, device)

    def maps(self, *, at: str, step: int | None, request_ids: Mapping[int, int]) -> Taken:
        """Return a ``map`` frame for each device; ``request_ids`` tells by device which request it answers."""
        cpu_ns = time.thread_time_ns()
        with cyclic_collection_paused():
            now_us = unix_us()
            begin_ns, begin_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            segments = self._source.segments()
            pause_ns = time.perf_counter_ns() - begin_ns
            waited_ns = max(0, pause_ns - (time.thread_time_ns() - begin_cpu_ns))
            named = self._registry.columns(self._source.tensor_span)
            columns = {
                device: {**columns_of_device(segments, device), **tensor_columns(named.get(device))}
                for device in self.mappable
            }
            # Freed before the collector is on again: what is gone needs no collecting.
            del segments
            cost_us = (time.thread_time_ns() - cpu_ns + waited_ns) / 1000
            header = {"kind": "map", "time_unix_us": now_us, "at": at, "step": step, "cost_us": round(cost_us)}
            frames = [
                encode({**header, "device": device, "request_id": request_ids.get(device)}, found)
                for device, found in columns.items()
            ]
        cost_us = (time.thread_time_ns() - cpu_ns + waited_ns) / 1000
        return Taken(frames, cost_us, waited_ns / 1000, pause_ns / 1000)

    def stack(self, device: int, address: int) -> tuple[list[tuple[str, int, str]], str | None]:
        """Return the stack of a block, and the reason where it has none."""
        with cyclic_collection_paused():
            return self._source.stack(device, address)


def mark_frame(mark: str, label: str, time_unix_us: int, step: int | None, device: int | None = None) -> bytes:
    """Return a ``mark`` frame."""
    header = {"kind": "mark", "time_unix_us": time_unix_us, "mark": mark, "label": label[:LONGEST_LABEL]}
    return encode({**header, "device": device, "step": step})


def _pick(stats: Mapping[str, Any], path: Sequence[str]) -> int | None:
    """Return the number at ``path``, or None where this torch or this allocator does not have it."""
    found: Any = stats
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, int) else None


@contextmanager
def cyclic_collection_paused() -> Iterator[None]:
    """Keep Python's cyclic collector away: tens of thousands of new dicts would start it (164 ms, 46 ms without, measured).

    By its threshold, not by ``gc.disable()``: a thread of the job that switches the collector off meanwhile must find it off
    afterwards, and one that asks ``gc.isenabled()``, to restore it later, must be told the job's own state.
    """
    before = gc.get_threshold()
    paused = (0, *before[1:])
    gc.set_threshold(*paused)
    try:
        yield
    finally:
        if gc.get_threshold() == paused:  # else the job has set its own meanwhile
            gc.set_threshold(*before)
