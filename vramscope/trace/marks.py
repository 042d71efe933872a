"""The moments of a trace that have a name: the peak, out-of-memories, snapshots, annotations, regions and steps."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from vramscope.snapshot.columns import ACTION_CODE, Snapshot
from vramscope.trace.timeline_view import TIME, Axis, Timeline
from vramscope.units import format_bytes

MOST_MARKS = 500
# In the order in which they are kept where there are too many.
KINDS = ("peak", "oom", "step", "annotation", "snapshot", "region")
_STEP = re.compile(r"^(ProfilerStep|Optimizer\.step|## ?step|step)\b", re.IGNORECASE)


class TraceMark(NamedTuple):
    """A mark at a position of an axis; ``until`` is where a region ends, ``event`` None where it is between events."""

    kind: str
    at: float
    until: float | None
    event: int | None
    label: str


def marks_in(
    snapshot: Snapshot, timeline: Timeline, axis: Axis, begin: float, end: float
) -> tuple[list[TraceMark], int]:
    """Return the marks that lie in a range, by position, and how many more of them there are."""
    found = [*_events(snapshot, timeline, axis), *_regions(snapshot, timeline, axis)]
    inside = [mark for mark in found if mark.at <= end and (mark.at if mark.until is None else mark.until) >= begin]
    inside.sort(key=lambda mark: (KINDS.index(mark.kind), mark.at))
    kept = sorted(inside[:MOST_MARKS], key=lambda mark: mark.at)
    return kept, len(inside) - len(kept)


def _events(snapshot: Snapshot, timeline: Timeline, axis: Axis) -> list[TraceMark]:
    events, peak = timeline.trace.events, timeline.peak
    marks = []
    if peak is not None:
        label = f"peak {format_bytes(peak.peak_bytes)}"
        marks.append(TraceMark("peak", axis.at(peak.event), None, peak.event, label))
    for kind, action in (("oom", "oom"), ("snapshot", "snapshot"), ("annotation", "annotate")):
        for event in np.flatnonzero(events.action == ACTION_CODE[action]).tolist():
            label = kind if kind != "oom" else f"out of memory: {format_bytes(int(events.size_bytes[event]))} asked"
            if kind == "annotation" and events.user_metadata is not None and events.user_metadata[event] >= 0:
                label = snapshot.texts.get(int(events.user_metadata[event]))
            marks.append(TraceMark(kind, axis.at(event), None, event, label))
    return marks


def _regions(snapshot: Snapshot, timeline: Timeline, axis: Axis) -> list[TraceMark]:
    """Return the regions of the trace's device; one that has no end goes to the end, one without a start is left out."""
    clock = timeline.axes.get(TIME)
    if clock is None:
        return []
    own = snapshot.annotations
    open_at: dict[int, list[int]] = {}
    marks = []

    def mark(name: int, start_us: int, end_us: float) -> TraceMark:
        label = snapshot.texts.get(name)
        kind = "step" if _STEP.match(label) else "region"
        positions = (float(start_us), float(end_us))
        if axis.name != TIME:
            positions = (float(clock.event_at(positions[0])), float(clock.event_at(positions[1])))
        return TraceMark(kind, positions[0], positions[1], None, label)

    for place in np.flatnonzero(own.device == timeline.trace.device).tolist():
        name, time_us = int(own.name[place]), int(own.time_us[place])
        if own.is_start[place]:
            open_at.setdefault(name, []).append(time_us)
        elif open_at.get(name):
            marks.append(mark(name, open_at[name].pop(), time_us))
    marks += [mark(name, start_us, clock.end) for name, starts in open_at.items() for start_us in starts]
    return marks
