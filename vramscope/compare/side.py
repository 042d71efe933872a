"""One side of a comparison: a device of a snapshot at one moment, and how people name that moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vramscope.columns import DeviceMap
from vramscope.errors import BadInputError
from vramscope.trace.categories import rules_of, sites_of
from vramscope.trace.columns import BEFORE, DeviceTrace, Moment, TracedSnapshot
from vramscope.trace.described import Described
from vramscope.trace.missing import missing_of
from vramscope.trace.moment import moment_at

END, PEAK, OOM = "end", "peak", "oom"


@dataclass(frozen=True, eq=False)
class Side:
    """A device of ``traced`` at ``moment``; ``name`` is what its file is called."""

    name: str
    traced: TracedSnapshot
    trace: DeviceTrace
    moment: Moment

    @property
    def state(self) -> DeviceMap:
        return self.moment.state

    @cached_property
    def described(self) -> Described:
        """The trace together with what its stacks say."""
        snapshot = self.traced.snapshot
        return Described(snapshot, self.trace, rules_of(snapshot), sites_of(snapshot))

    @property
    def when(self) -> str:
        """Return the moment in words."""
        event = self.moment.event
        if event == self.trace.event_count - 1:
            return "at the end"
        return "before the trace" if event == BEFORE else f"after event {event}"

    @property
    def uncertain_blocks(self) -> int:
        """Return how many live blocks have an end that is not certain."""
        return int(np.count_nonzero(self.moment.uncertain_block & (self.moment.block_allocation >= 0)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a line for each thing that this side's file cannot tell, or contradicts."""
        lines = [*self.traced.snapshot.notes, *missing_of(self.trace)]
        if self.uncertain_blocks:
            lines.append(
                f"the ends of {self.uncertain_blocks} live blocks are not certain: active bytes are at least what is shown"
            )
        return tuple(lines)


def side_of(traced: TracedSnapshot, *, name: str, device: int | None = None, at: str = END) -> Side:
    """Return the side for ``device`` at ``at``: "end", "peak", "oom" or an event's number.

    Without a ``device`` it is the first with anything in it, for "oom" the first that ran out of memory.
    Raises BadInputError with one line where the file does not have that device or moment, or contradicts itself.
    """
    if device is None and at == OOM:
        device = device_out_of_memory(traced)
    trace = trace_of_device(traced, device, name)
    place = f"{name}, device {trace.device}"
    contradiction = next(found.contradiction for found in traced.snapshot.devices if found.device == trace.device)
    if contradiction is not None:
        raise BadInputError(f"{place}: {contradiction}, so nothing can be derived from it")
    event = event_of(trace, at, place)
    try:
        return Side(name, traced, trace, moment_at(trace, event))
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from None


def trace_of_device(traced: TracedSnapshot, device: int | None, name: str) -> DeviceTrace:
    """Return the trace of ``device``; for None of the first with a segment or an event. Raises BadInputError."""
    if device is None:
        used = (trace for trace in traced.traces if trace.final.segment_count or trace.event_count)
        found = next(used, next(iter(traced.traces), None))
        if found is None:
            raise BadInputError(f"{name} holds no device: nothing had been allocated yet")
        return found
    for trace in traced.traces:
        if trace.device == device:
            return trace
    known = ", ".join(str(trace.device) for trace in traced.traces) or "none"
    raise BadInputError(f"{name} has no device {device}; it has {known}")


def device_out_of_memory(traced: TracedSnapshot) -> int | None:
    """Return the first device that recorded an out-of-memory, None where none did."""
    return next((trace.device for trace in traced.traces if len(trace.events.oom_event)), None)


def event_of(trace: DeviceTrace, at: str, place: str) -> int:
    """Return the event after which the moment ``at`` is. Raises BadInputError where the trace of ``place`` has no such moment."""
    if at == END:
        return trace.event_count - 1
    if at == PEAK:
        if trace.peak is None:
            why = trace.contradiction or "no allocations were recorded"
            raise BadInputError(f"{place} has no peak: {why}; use its end")
        return trace.peak.event
    if at == OOM:
        if not len(trace.events.oom_event):
            raise BadInputError(f"{place} recorded no out-of-memory; use its peak or its end")
        return int(trace.events.oom_event[-1])
    if not (at.isascii() and at.isdigit() and len(at) <= 18):
        raise BadInputError(f"{at[:40]!r} is no moment; give end, peak, oom or the number of an event")
    if int(at) >= trace.event_count:
        last = f"its last is {trace.event_count - 1}" if trace.event_count else "it has none"
        raise BadInputError(f"{place} has no event {at}; {last}")
    return int(at)
