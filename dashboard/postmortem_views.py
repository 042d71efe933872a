"""The routes of one device of an open snapshot: timeline, moments, stacks, tables, search and out-of-memories."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import flask
import numpy as np

from dashboard import postmortem_arguments as arguments
from dashboard.answers import as_json
from dashboard.figures import segment_map, stacks, timeline_frame
from dashboard.files import FileNotOpen, SnapshotFiles, UnknownFile
from dashboard.files_opened import OpenedDevice
from dashboard.postmortem_rows import rows
from vramscope.agent.categories import CATEGORIES
from vramscope.columns import INACTIVE
from vramscope.errors import BadInputError
from vramscope.owners import NO_OWNER
from vramscope.trace.columns import BEFORE, Moment
from vramscope.trace.described import KINDS, event_codes
from vramscope.trace.facts import allocation_facts, block_at, block_facts
from vramscope.trace.live import alive_at
from vramscope.trace.marks import marks_in
from vramscope.trace.out_of_memory import out_of_memory
from vramscope.trace.search import MOST_HITS, search
from vramscope.trace.stack_tree import stack_tree, stacks_with
from vramscope.trace.sums import sums_of
from vramscope.trace.timeline_view import STEP, TIME, Axis, Timeline, view

DEVICE = "/files/<file_id>/<int:number>"
LEAST_WIDTH, MOST_WIDTH = 50, 4000
MOST_OOMS = 50

Answer = Callable[[OpenedDevice], flask.Response]


def add_routes(routes: flask.Blueprint, files: SnapshotFiles) -> None:
    """Add the routes of a device to the blueprint."""

    def of_device(path: str) -> Callable[[Answer], None]:
        """Return what adds a route that is answered from an open device."""

        def add(answer: Answer) -> None:
            @wraps(answer)
            def found(file_id: str, number: int) -> flask.Response:
                device = files.opened(file_id).devices.get(number)
                if device is None:
                    raise UnknownFile(f"this file has no device {number}")
                return answer(device)

            routes.get(f"{DEVICE}/{path}")(found)

        return add

    of_device("timeline.bin")(timeline)
    of_device("marks.json")(marks)
    of_device("moment.bin")(moment)
    of_device("block.json")(block)
    of_device("allocation.json")(allocation)
    of_device("near.json")(near)
    of_device("step.json")(step)
    of_device("stacks.json")(stacks_figure)
    of_device("rows.json")(table_rows)
    of_device("search.json")(search_hits)
    of_device("oom.json")(ooms)


def timeline(device: OpenedDevice) -> flask.Response:
    """Answer the binary frame of a range of the timeline."""
    found, axis = _timeline(device)
    width = arguments.integer("width", 1000, low=LEAST_WIDTH, high=MOST_WIDTH)
    colour = arguments.choice("colour", timeline_frame.COLOURS)
    shown = view(found, axis, arguments.number("from", axis.begin), arguments.number("to", axis.end), width)
    return _binary(timeline_frame.encode(found, shown, device.file.rules, colour))


def marks(device: OpenedDevice) -> flask.Response:
    """Answer the marks of a range."""
    found, axis = _timeline(device)
    begin, end = arguments.number("from", axis.begin), arguments.number("to", axis.end)
    inside, left_out = marks_in(device.file.snapshot, found, axis, begin, end)
    return as_json({"marks": [mark._asdict() for mark in inside], "left_out": left_out})


def moment(device: OpenedDevice) -> flask.Response:
    """Answer the frame of the segment map after an event, as the live map's is."""
    event = _event(device)
    sort, pool = arguments.choice("sort", segment_map.SORTS), arguments.choice("pool", segment_map.POOLS, "all")
    found = device.moment(event)
    state = found.state
    owner = device.described.categories(found.block_stack)
    owner = np.where(state.block_state == INACTIVE, np.uint8(NO_OWNER), owner)
    uncertain = int(np.count_nonzero(found.uncertain_block))
    header = {
        "token": f"{event}",
        "categories": CATEGORIES,
        "time_unix_us": device.described.time_us(event),
        "event": event,
        "segments": state.segment_count,
        "blocks": state.block_count,
        "uncertain": uncertain,
        "row": _row(device, event),
        **sums_of(found, knows_requests=device.trace.requested_bytes is not None),
    }
    picture = segment_map.build(state, owner, sort=sort, pool=pool)
    return _binary(segment_map.encode(picture, header))


def block(device: OpenedDevice) -> flask.Response:
    """Answer what is known of the block around an address; ``{}`` where no segment is."""
    found = device.moment(_event(device))
    place = block_at(found, arguments.address())
    return as_json({} if place is None else block_facts(device.described, found, place))


def allocation(device: OpenedDevice) -> flask.Response:
    """Answer what is known of an allocation, with its neighbours at an event."""
    count = len(device.trace.allocations)
    if not count:
        raise BadInputError("this trace does not tell allocations")
    wanted = arguments.integer("allocation", 0, low=0, high=count - 1)
    event = _event(device)
    found: Moment | None = device.moment(event) if _is_told(device, event) else None
    return as_json(allocation_facts(device.described, wanted, event, found))


def near(device: OpenedDevice) -> flask.Response:
    """Answer the last event at or before a position of an axis."""
    _, axis = _timeline(device)
    event = axis.event_at(arguments.number("at", axis.begin))
    return as_json({"event": event, "row": _row(device, event), "at": axis.at(event)})


def step(device: OpenedDevice) -> flask.Response:
    """Answer the next event, or the one before, of the wanted kinds."""
    event, is_forward = _event(device), arguments.choice("by", ("1", "-1")) == "1"
    kinds = arguments.choices("only", tuple(KINDS))
    wanted = np.arange(device.trace.event_count)
    if kinds:
        wanted = np.flatnonzero(np.isin(device.trace.events.action, event_codes(kinds)))
    place = int(np.searchsorted(wanted, event, side="right" if is_forward else "left")) - (0 if is_forward else 1)
    if 0 <= place < len(wanted):
        event = int(wanted[place])
        return as_json({"event": event, "row": _row(device, event), "end": False})
    if not is_forward and event != BEFORE:
        return as_json({"event": BEFORE, "row": None, "end": False})
    return as_json({"event": event, "row": _row(device, event), "end": True})


def stacks_figure(device: OpenedDevice) -> flask.Response:
    """Answer the icicle of bytes by stack: alive at an event or at the peak, or allocated over a range of events."""
    snapshot, own = device.file.snapshot, device.trace.allocations
    at, text = arguments.choice("at", ("event", "peak", "range")), arguments.text("text")
    last = device.last_event
    if at == "range":
        low, high = (
            arguments.integer(name, edge, low=BEFORE, high=max(last, 0)) for name, edge in (("from", 0), ("to", last))
        )
        chosen = (own.first_event >= low) & (own.first_event <= high)
        stack, size = own.stack[chosen], own.block_bytes[chosen].astype(np.int64)
        what = f"allocated {'before the trace or in it up' if low == BEFORE else f'from event {low}'} to event {high}"
    else:
        event = _event(device) if at == "event" else _peak_event(device)
        alive = alive_at(device.trace, event)
        stack, size = alive.stack, alive.size_bytes
        what = f"alive {'at the peak, ' if at == 'peak' else ''}after event {event}"
    total = int(size.sum())
    if text:
        matches = np.append(stacks_with(snapshot, text), False)[stack]
        stack, size = stack[matches], size[matches]
    tree = stack_tree(snapshot, stack, size)
    answer = {
        "figure": stacks.figure(tree),
        "what": what,
        "bytes": total,
        "shown": tree.size_bytes[0],
        "blocks": tree.count[0],
        "left_out_nodes": tree.left_out,
        "basis": "block bytes",
    }
    return as_json(answer)


def table_rows(device: OpenedDevice) -> flask.Response:
    """Answer a page of a table."""
    return as_json(rows(device, _event(device)))


def search_hits(device: OpenedDevice) -> flask.Response:
    """Answer what the search box found."""
    found = search(device.described, arguments.text("q"))
    return as_json({**found._asdict(), "cut": found.total > MOST_HITS})


def ooms(device: OpenedDevice) -> flask.Response:
    """Answer every out-of-memory of the trace, with what lay in memory then."""
    events = device.trace.events.oom_event[:MOST_OOMS].tolist()
    found = [
        out_of_memory(device.described, place, device.moment(event) if _is_told(device, event) else None)
        for place, event in enumerate(events)
    ]
    return as_json({"ooms": found, "left_out": len(device.trace.events.oom_event) - len(events)})


def _binary(frame: bytes) -> flask.Response:
    return flask.Response(frame, mimetype="application/octet-stream")


def _timeline(device: OpenedDevice) -> tuple[Timeline, Axis]:
    found = device.timeline
    if found is None:
        raise FileNotOpen(
            device.trace.contradiction or "this device has no trace: record it with _record_memory_history"
        )
    allowed = tuple(name for name in (TIME, STEP) if name in found.axes)
    return found, found.axes[arguments.choice("axis", allowed)]


def _event(device: OpenedDevice) -> int:
    return arguments.integer("event", device.last_event, low=BEFORE, high=device.last_event)


def _peak_event(device: OpenedDevice) -> int:
    peak = None if device.timeline is None else device.timeline.peak
    if peak is None:
        raise BadInputError("the peak does not follow from this trace; ask for the end")
    return peak.event


def _is_told(device: OpenedDevice, event: int) -> bool:
    return device.trace.tells_moments or event == device.last_event


def _row(device: OpenedDevice, event: int) -> dict[str, Any] | None:
    return None if event == BEFORE else device.described.event_row(event)
