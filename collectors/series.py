"""One device of one rank: its newest figures and map, and the samples that wait to be written. Pure."""

from __future__ import annotations

import array
import math
from typing import Any

import numpy as np

from collectors.announce import check_sizes, read_counters
from collectors.rollup import Points
from vramscope.agent.wire import Frame, columns, encode
from vramscope.columns import INACTIVE, DeviceMap, from_frame
from vramscope.errors import WireError
from vramscope.metrics import summarize
from vramscope.records import HISTORY, DeviceReading

# A figure that comes with maps is held until the next one is overdue by far; then it is unknown again.
HELD_LEAST_US = 10_000_000
HELD_INTERVALS = 3
READING_HELD_US = 5_000_000
# A sample from the future would keep all later ones out.
FUTURE_US = 60_000_000

FROM_MAP = frozenset({"largest_free_block_bytes", "largest_fit_bytes"})


class Series:
    """``version`` of a map is its moment: it never repeats, and outlives a restart of the collector."""

    def __init__(self, newest_us: int = 0) -> None:
        self.newest_us = newest_us
        self.step: int | None = None
        self.counters: dict[str, int | None] = {}
        self.figures: dict[str, int | float | str | None] = {}
        self._expandable = False
        self.map: Frame | None = None
        self.map_time_us: int | None = None
        self.map_received_us = 0
        self.map_kept_us = 0
        self.boundary: array.array[int] | None = None
        # Their sum when the driver's free bytes last changed; it stays the same while only this job allocates.
        self._free_and_reserved_bytes: int | None = None
        self._samples: list[list[float]] = []

    def add_counters(
        self, found: dict[str, Any], time_us: int, now_us: int, reading: DeviceReading | None, map_interval_us: int
    ) -> bool:
        """Take one sample. Returns False where its time is not after the newest, or lies in the future: it is dropped."""
        if not self.newest_us < time_us <= now_us + FUTURE_US:
            return False
        self.newest_us = time_us
        before, self.counters = self.counters, read_counters(found)
        self._pair_free_and_reserved(before.get("device_free_bytes"))
        if self._free_and_reserved_bytes is not None:
            self._complete_figures()
        values: dict[str, int | float | str | None] = dict(self.counters)
        held_us = max(HELD_LEAST_US, HELD_INTERVALS * map_interval_us)
        if self.map_time_us is not None and now_us - self.map_received_us <= held_us:
            values |= {name: self.figures.get(name) for name in FROM_MAP}
        if reading is not None and now_us - reading.time_unix_us <= READING_HELD_US:
            values["nvml_used_bytes"] = reading.used_bytes
        self._samples.append([float(time_us), *(_number(values.get(name)) for name in HISTORY)])
        return True

    def add_map(self, frame: Frame, now_us: int, *, expandable: bool) -> None:
        """Take a map. Raises WireError where its columns contradict each other."""
        # The version is the collector's to give, whatever the agent wrote.
        found = from_frame(frame._replace(header={**frame.header, "version": 0}))
        check_sizes(found)
        self._expandable = expandable
        self._summarize(found)
        self.map, self.map_time_us, self.map_received_us = frame, found.time_unix_us, now_us
        if frame.header.get("at") == "step_end":
            active = found.block_address[found.block_state != INACTIVE]
            self.boundary = array.array("Q", active.astype("=u8").tobytes())

    def _complete_figures(self) -> None:
        """Derive the figures again where their map came before the driver's word."""
        if self.map is not None and self.figures["largest_fit_bytes"] is None:
            self._summarize(from_frame(self.map))

    def _summarize(self, found: DeviceMap) -> None:
        free_bytes = self._free_at(int(found.segment_total_bytes.sum()))
        self.figures = summarize(found, device_free_bytes=free_bytes, expandable=self._expandable).as_dict()
        if free_bytes != self.counters.get("device_free_bytes"):
            self.figures["largest_fit_is_estimate"] = True

    def _pair_free_and_reserved(self, free_before_bytes: int | None) -> None:
        free_bytes, reserved_bytes = self.counters["device_free_bytes"], self.counters["reserved_bytes"]
        if free_bytes is None or reserved_bytes is None:
            self._free_and_reserved_bytes = None
        elif free_bytes != free_before_bytes or self._free_and_reserved_bytes is None:
            self._free_and_reserved_bytes = free_bytes + reserved_bytes

    def _free_at(self, reserved_bytes: int) -> int | None:
        """Return what the driver had free when this job had ``reserved_bytes``, or None where that was never told.

        Agents ask the driver once a second only, and a map may be of another moment: what one of the two gained, the other lost.
        """
        if self._free_and_reserved_bytes is None:
            return None
        return max(0, self._free_and_reserved_bytes - reserved_bytes)

    def map_frame(self, header: dict[str, Any]) -> bytes:
        """Return the newest map as a frame with the fields of ``header``, its version and the boundary added."""
        if self.map is None:
            raise WireError("no map has arrived yet")
        found = {**columns(self.map), **({} if self.boundary is None else {"boundary_address": self.boundary})}
        own = {name: self.map.header.get(name) for name in ("device", "time_unix_us", "at", "step", "cost_us")}
        return encode({**own, "version": self.map_time_us, **header}, found)

    def take_samples(self) -> Points | None:
        """Return the samples since the last call, or None where there is none."""
        if not self._samples:
            return None
        table = np.array(self._samples)
        self._samples = []
        return Points(table[:, 0].astype(np.int64), table[:, 1:], table[:, 1:])

    def forget_map(self) -> None:
        """Free the map's memory; the store still has it."""
        self.map = self.boundary = None


def _number(value: int | float | str | None) -> float:
    return math.nan if value is None or isinstance(value, str) else float(value)
