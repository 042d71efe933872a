"""A snapshot that is open, with what its views share, each worked out once when it is first asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, Generic, TypeVar

from vramscope.errors import BadInputError
from vramscope.snapshot.columns import I32, I64, Snapshot
from vramscope.snapshot.summary import summarize_snapshot
from vramscope.trace.categories import StackRules, rules_of, sites_of
from vramscope.trace.columns import DeviceTrace, Moment, TracedSnapshot
from vramscope.trace.described import Described
from vramscope.trace.moment import moment_at
from vramscope.trace.timeline_view import Timeline, timeline_of

# The map, the stacks and the tables of one page are of the same moment; a few more serve other tabs.
MOMENTS_KEPT = 4
# Orders of the tables of a million rows, which the grid asks for page by page.
ORDERS_KEPT = 4

Value = TypeVar("Value")


class OpenedFile:
    """One snapshot; ``devices`` are by number. Two threads that ask at once may both work a thing out, to the same result."""

    def __init__(self, traced: TracedSnapshot) -> None:
        self.traced = traced
        self.devices = {trace.device: OpenedDevice(self, trace) for trace in traced.traces}

    @property
    def snapshot(self) -> Snapshot:
        return self.traced.snapshot

    @cached_property
    def summary(self) -> dict[str, Any]:
        return summarize_snapshot(self.traced)

    @cached_property
    def rules(self) -> StackRules:
        return rules_of(self.snapshot)

    @cached_property
    def sites(self) -> I32:
        return sites_of(self.snapshot)


class OpenedDevice:
    """One device of an open snapshot."""

    def __init__(self, file: OpenedFile, trace: DeviceTrace) -> None:
        self.file, self.trace = file, trace
        self._moments: _Newest[Moment] = _Newest(MOMENTS_KEPT)
        self._orders: _Newest[I64] = _Newest(ORDERS_KEPT)

    @cached_property
    def described(self) -> Described:
        return Described(self.file.snapshot, self.trace, self.file.rules, self.file.sites)

    @cached_property
    def timeline(self) -> Timeline | None:
        return timeline_of(self.trace)

    @property
    def last_event(self) -> int:
        """The event whose moment is the final state; BEFORE where there are no events."""
        return self.trace.event_count - 1

    @cached_property
    def moments(self) -> str:
        """Which moments can be shown: "all", "end", or "none" where the file contradicts itself."""
        if self.trace.tells_moments:
            return "all"
        try:
            self.moment(self.last_event)
        except BadInputError:
            return "none"
        return "end"

    def moment(self, event: int) -> Moment:
        """Return the moment after ``event``. Raises BadInputError with one line where the trace does not tell it."""
        if not -1 <= event <= self.last_event:
            raise BadInputError(f"there is no event {event}: this trace has {self.trace.event_count}")
        return self._moments.get(event, lambda: moment_at(self.trace, event))

    def kept(self, key: Hashable, make: Callable[[], I64]) -> I64:
        """Return the order of a table, made by ``make`` where it is not one of the last few."""
        return self._orders.get(key, make)


class _Newest(Generic[Value]):
    """Keeps the values that were asked for last; one at a time is made."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return self._values[key]
