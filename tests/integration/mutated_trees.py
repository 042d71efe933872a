"""Breaks the objects inside a snapshot, and asks everything of the result that the pages, diff and report can ask.

Run: python -m tests.integration.mutated_trees FILE… [--count 1000] [--seed 1] [--seconds 600] [--events 400]
Prints how many were refused, and in which words, as JSON. Exit status 1 where an answer is a fault: an exception that is no
line for people, or figures that cannot be, such as a level below 0 or tables that do not sum to their totals.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import pickle
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flask
import numpy as np
import orjson
from flask.testing import FlaskClient

from dashboard import postmortem_routes
from dashboard.files_opened import OpenedDevice, OpenedFile
from dashboard.files_opening import OPEN, OpeningState
from dashboard.files_remembered import COMMAND_LINE, FileRecord
from vramscope.columns import INACTIVE, check
from vramscope.compare.difference import difference
from vramscope.compare.side import side_of
from vramscope.compare.words import as_json, text_lines
from vramscope.errors import BadInputError
from vramscope.report.content import content_of
from vramscope.report.page import page
from vramscope.snapshot.build import build_snapshot
from vramscope.snapshot.columns import ACTIONS, exact_sum
from vramscope.snapshot.summary import summarize_snapshot
from vramscope.trace.build import traced
from vramscope.trace.columns import BEFORE, DeviceTrace, Moment, TracedSnapshot
from vramscope.trace.moment import moment_at
from vramscope.units import GIB, MIB

Tree = dict[str, Any]

NUMBERS = (
    0,
    1,
    -1,
    511,
    512,
    513,
    MIB,
    1 << 32,
    1 << 53,
    (1 << 62) - 1,
    1 << 62,
    1 << 63,
    (1 << 64) - 1,
    1 << 64,
    -(1 << 63),
)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    1.5,
    float("nan"),
    "x",
    "<img src=x onerror=alert(1)>",
    "\ud800",
    "a\nb\x1b[2J",
    b"x",
    [],
    {},
    (),
    [[]],
    10**30,
)
MOST_FAULTS = 20
FILE_ID = "0" * 16


def mutant(content: Tree, dice: random.Random) -> Tree:
    """Return ``content`` with one to three things broken."""
    found = copy.deepcopy(content)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        # What one broke may not be there to be broken by the next.
        with contextlib.suppress(TypeError, AttributeError, ValueError, KeyError, IndexError):
            dice.choice(WAYS)(found, dice)
    return found


def _trace(found: Tree, dice: random.Random) -> list[Tree]:
    traces = [trace for trace in found.get("device_traces", []) if trace]
    return dice.choice(traces) if traces else []


def _segment(found: Tree, dice: random.Random) -> Tree:
    return dice.choice(found["segments"]) if found["segments"] else {}


def replace_anything(found: Tree, dice: random.Random) -> None:
    node: Any = found
    while True:
        key = dice.choice(list(node)) if isinstance(node, dict) else dice.randrange(len(node))
        if not (isinstance(node[key], dict | list) and node[key] and dice.random() < 0.9):
            break
        node = node[key]
    node[key] = dice.choice((*NUMBERS, *OTHERS))


def change_number_of_event(found: Tree, dice: random.Random) -> None:
    trace = _trace(found, dice)
    if trace:
        event = dice.choice(trace)
        key = dice.choice(
            [key for key in ("addr", "size", "stream", "time_us", "device_free") if key in event] or ["x"]
        )
        old = event.get(key, 0)
        near = (old + dice.choice((-512, -1, 1, 512, 1 << 21)), old * 2, dice.choice(trace).get(key, 0))
        event[key] = dice.choice((*near, *NUMBERS))


def change_action(found: Tree, dice: random.Random) -> None:
    trace = _trace(found, dice)
    if trace:
        dice.choice(trace)["action"] = dice.choice((*ACTIONS, "of_tomorrow"))


def reorder(found: Tree, dice: random.Random) -> None:
    trace = _trace(found, dice)
    if trace:
        one, other = dice.randrange(len(trace)), dice.randrange(len(trace))
        trace[one], trace[other] = trace[other], trace[one]


def lose_events(found: Tree, dice: random.Random) -> None:
    trace = _trace(found, dice)
    start = dice.randrange(len(trace) + 1)
    del trace[start : start + dice.choice((1, 2, 10, len(trace)))]


def repeat_events(found: Tree, dice: random.Random) -> None:
    trace = _trace(found, dice)
    start = dice.randrange(len(trace) + 1)
    trace[start:start] = copy.deepcopy(trace[start : start + dice.choice((1, 2, 5))])


def add_event(found: Tree, dice: random.Random) -> None:
    trace = _trace(found, dice)
    if trace:
        new = copy.deepcopy(dice.choice(trace))
        new |= {"action": dice.choice(ACTIONS), "addr": dice.choice((*NUMBERS[:13], dice.choice(trace).get("addr", 0)))}
        new |= {
            "size": dice.choice((512, MIB, 2 * MIB, 1 << 62, (1 << 64) - 1)),
            "device_free": dice.choice(NUMBERS[:13]),
        }
        trace.insert(dice.randrange(len(trace) + 1), new)


def turn_time_back(found: Tree, dice: random.Random) -> None:
    for event in _trace(found, dice):
        if "time_us" in event:
            event["time_us"] = dice.choice(
                (0, -1, event["time_us"], -(1 << 63), (1 << 63) - 1, event["time_us"] - 10**9)
            )


def change_block(found: Tree, dice: random.Random) -> None:
    blocks = _segment(found, dice).get("blocks") or [{}]
    block = dice.choice(blocks)
    key = dice.choice(list(block) or ["size"])
    block[key] = dice.choice((*NUMBERS, "active_allocated", "active_pending_free", "inactive", "active_awaiting_free"))


def change_segment(found: Tree, dice: random.Random) -> None:
    made = _segment(found, dice)
    key = dice.choice(list(made) or ["address"])
    made[key] = dice.choice((*NUMBERS, "small", "large", (1, 2), True, _segment(found, dice).get(key)))


def change_both(found: Tree, dice: random.Random) -> None:
    """Make a whole state huge: a size that its segment, its blocks and its totals agree on."""
    made = _segment(found, dice)
    if made:
        size = dice.choice((1 << 40, 1 << 61, 1 << 62, 1 << 63, (1 << 64) - 512))
        address = dice.choice((0, 512, made["address"], (1 << 64) - size))
        requested = dice.choice((size, 0, (1 << 64) - 1))
        made |= {"address": address, "total_size": size, "allocated_size": size, "active_size": size}
        made["requested_size"] = requested
        made["blocks"] = [
            {"address": address, "size": size, "requested_size": requested, "state": "active_allocated", "frames": []}
        ]


def overlap(found: Tree, dice: random.Random) -> None:
    made = copy.deepcopy(_segment(found, dice))
    if made:
        shift = dice.choice((0, 512, 1 << 20, 1 << 21, -512))
        made["address"] += shift
        for block in made["blocks"]:
            if "address" in block:
                block["address"] += shift
        found["segments"].append(made)


def change_settings(found: Tree, dice: random.Random) -> None:
    settings = found.setdefault("allocator_settings", {})
    if isinstance(settings, dict):
        key = dice.choice((*settings, "new", "\ud800", "<script>"))
        settings[key] = dice.choice((*NUMBERS, *OTHERS, {"1": -1}, {str(1 << n): 1 << 62 for n in range(16)}))


def annotate(found: Tree, dice: random.Random) -> None:
    regions = found.setdefault("external_annotations", [])
    if isinstance(regions, list):
        name = dice.choice(("ProfilerStep#1", "<b>x</b>", "\ud800", ""))
        numbers = (0, -(1 << 63), (1 << 63) - 1, 1_700_000_000_000_000)
        for stage in dice.choice((("START", "END"), ("END", "START"), ("START",), ("MIDDLE",))):
            regions.append(
                {
                    "stage": stage,
                    "name": name,
                    "device": dice.choice((0, 1, -1, 1 << 40)),
                    "time_us": dice.choice(numbers),
                }
            )


def move_device(found: Tree, dice: random.Random) -> None:
    made = _segment(found, dice)
    made["device"] = dice.choice((0, 1, 2, 7, 1023, 1024, -1, 1 << 63))


WAYS: tuple[Callable[[Tree, random.Random], None], ...] = (
    replace_anything,
    replace_anything,
    change_number_of_event,
    change_number_of_event,
    change_action,
    reorder,
    lose_events,
    repeat_events,
    add_event,
    turn_time_back,
    change_block,
    change_segment,
    change_both,
    overlap,
    change_settings,
    annotate,
    move_device,
)


class OneFile:
    """What the routes ask of the registry, with one file that is always open."""

    def __init__(self) -> None:
        self.held: OpenedFile | None = None
        self.uploads = None

    def record(self, file_id: str) -> FileRecord:
        return FileRecord(file_id, "/x", "x", COMMAND_LINE, 1, 1)

    def state(self, file_id: str) -> OpeningState:
        return OpeningState(OPEN)

    def opened(self, file_id: str) -> OpenedFile:
        assert self.held is not None
        return self.held

    def capacity_bytes(self, file_id: str, device: int) -> int | None:
        return None


class Asker:
    """Asks everything of one snapshot; ``refused`` counts the lines, ``faults`` are what should not be."""

    def __init__(self, dice: random.Random) -> None:
        self.files, self.dice = OneFile(), dice
        self.refused: Counter[str] = Counter()
        server = flask.Flask("mutants")
        server.testing = True
        postmortem_routes.register(server, self.files)  # type: ignore[arg-type]
        self.client: FlaskClient = server.test_client()

    def ask(self, found: TracedSnapshot) -> None:
        """Raise AssertionError, or whatever the code raises that is no BadInputError."""
        self.files.held = held = OpenedFile(found)
        json.dumps(summarize_snapshot(found))
        self.get("state.json")
        for trace in found.traces:
            check_levels(trace)
            self.ask_device(held.devices[trace.device])
        self.compare(found)

    def get(self, path: str, **arguments: Any) -> bytes | None:
        answer = self.client.get(f"/postmortem/files/{FILE_ID}/{path}", query_string=arguments)
        if answer.status_code == 200:
            return bytes(answer.data)
        assert answer.status_code in (400, 404, 409), f"{answer.status_code} for {path}"
        line = str(orjson.loads(answer.data)["error"])
        assert "\n" not in line, line
        self.refused[line.split(":")[0][:60]] += 1
        return None

    def json(self, path: str, **arguments: Any) -> Any:
        data = self.get(path, **arguments)
        return None if data is None else orjson.loads(data)

    def ask_device(self, device: OpenedDevice) -> None:
        trace, number = device.trace, device.trace.device
        last = trace.event_count - 1
        events = {last, BEFORE, *(self.dice.randint(BEFORE, last) for _ in range(4))}
        for axis in ("time", "step"):
            if device.timeline is not None and axis in device.timeline.axes:
                self.timeline(device, axis)
        for event in events:
            self.moment(device, event)
        for query in ("0x7f0000000000", ">=1MiB", "512", "forward", "<", "=0", "18446744073709551615"):
            self.get(f"{number}/search.json", q=query)
        for at in ("peak", "range"):
            self.stacks(number, at=at)
        for table in ("allocations", "sites", "events", "segments"):
            self.get(f"{number}/rows.json", table=table, text=self.dice.choice(("", "a")))
        self.get(f"{number}/rows.json", table="allocations", sort="lifetime")
        self.get(f"{number}/step.json", event=self.dice.choice(list(events)), by=self.dice.choice(("1", "-1")))
        for oom in (self.json(f"{number}/oom.json") or {"ooms": []})["ooms"]:
            if oom["reserved_bytes"] is not None:
                assert oom["active_bytes"] + oom["free_bytes"] == oom["reserved_bytes"], oom
                assert sum(part["bytes"] for part in oom["categories"]) == oom["active_bytes"], oom
                assert oom["largest_hole_bytes"] <= oom["usable_bytes"] <= oom["free_bytes"], oom

    def timeline(self, device: OpenedDevice, axis: str) -> None:
        own = device.timeline
        assert own is not None
        begin, end = own.axes[axis].begin, own.axes[axis].end
        ends = sorted(begin + (end - begin) * self.dice.random() for _ in range(2))
        for low, high in ((begin, end), ends):
            data = self.get(
                f"{device.trace.device}/timeline.bin",
                axis=axis,
                width=300,
                colour=self.dice.choice(("category", "stack", "size", "stream")),
                **{"from": low, "to": high},
            )
            if data is not None:
                check_frame(data)
            self.get(f"{device.trace.device}/marks.json", axis=axis, **{"from": low, "to": high})
            self.get(f"{device.trace.device}/near.json", axis=axis, at=low)

    def stacks(self, number: int, **arguments: Any) -> Any:
        found = self.json(f"{number}/stacks.json", **arguments)
        if found is not None:
            (icicle,) = found["figure"]["data"]
            assert icicle["values"][0] == found["shown"] == found["bytes"], found["what"]
            inside = Counter[str]()
            for parent, value in zip(icicle["parents"], icicle["values"], strict=True):
                assert value >= 0, found["what"]
                inside[parent] += value
            for node, value in zip(icicle["ids"], icicle["values"], strict=True):
                assert inside[node] <= value, (node, inside[node], value)
        return found

    def moment(self, device: OpenedDevice, event: int) -> None:
        trace, number = device.trace, device.trace.device
        try:
            found = moment_at(trace, event)
        except BadInputError as error:
            self.refused[str(error).split(":")[0][:60]] += 1
            found = None
        if found is not None:
            check_moment(trace, found, event)
        data = self.get(f"{number}/moment.bin", event=event, sort=self.dice.choice(("size", "address")))
        if found is None:
            assert data is None
            return
        assert data is not None
        header = orjson.loads(data[8 : 8 + int.from_bytes(data[4:8], "little")])
        stacks = self.stacks(number, at="event", event=event)
        sites = self.json(f"{number}/rows.json", table="sites", event=event, last=1000)
        segments = self.json(f"{number}/rows.json", table="segments", event=event, last=1000)
        assert header["active_bytes"] == stacks["bytes"], (header["active_bytes"], stacks["bytes"])
        if sites["total"] <= 1000:
            assert sum(row["bytes"] for row in sites["rows"]) == header["active_bytes"]
        if segments["total"] <= 1000:
            assert sum(row["bytes"] for row in segments["rows"]) == header["reserved_bytes"]
            assert sum(row["active_bytes"] for row in segments["rows"]) == header["active_bytes"]
        state = found.state
        for block in {0, state.block_count - 1, self.dice.randrange(max(state.block_count, 1))}:
            if 0 <= block < state.block_count:
                self.get(f"{number}/block.json", event=event, address=int(state.block_address[block]))
        if len(trace.allocations):
            self.get(f"{number}/allocation.json", event=event, allocation=self.dice.randrange(len(trace.allocations)))

    def compare(self, found: TracedSnapshot) -> None:
        for at in ("end", "peak", "oom", "0"):
            try:
                a, b = side_of(found, name="a", at="end"), side_of(found, name="b", at=at)
                made = difference(a, b)
                json.dumps(as_json(made, top=None))
                "\n".join(text_lines(made, top=15)).encode()
                for row in made.totals:
                    assert row.difference is None or (row.a is not None and row.b is not None)
                for rows in (made.categories, made.sites, made.stacks):
                    assert sum(row.a_bytes for row in rows) == exact_sum(
                        a.state.block_bytes[a.state.block_state != INACTIVE]
                    )
            except BadInputError as error:
                self.refused[str(error).split(":")[0][:60]] += 1
        try:
            page(content_of(found, name="a"), made_at="now").encode("utf-8", "replace")
        except BadInputError as error:
            self.refused[str(error).split(":")[0][:60]] += 1


def check_levels(trace: DeviceTrace) -> None:
    active, requested, reserved = trace.active_bytes, trace.requested_bytes, trace.reserved_bytes
    if active is None or requested is None:
        return
    assert active.min() >= 0
    assert requested.min() >= 0
    if reserved is not None:
        assert np.all(active <= reserved)
    live = trace.final.block_state != INACTIVE
    assert int(active[-1]) == exact_sum(trace.final.block_bytes[live])
    assert int(requested[-1]) == exact_sum(trace.final.block_requested_bytes[live])
    if reserved is not None:
        assert int(reserved[-1]) == exact_sum(trace.final.segment_total_bytes)
    own = trace.allocations
    assert np.all(own.first_event <= own.free_event)
    assert np.all(own.free_event <= own.last_event)
    assert np.all(own.block_bytes >= own.requested_bytes)


def check_moment(trace: DeviceTrace, found: Moment, event: int) -> None:
    state = found.state
    check(state)
    live = state.block_state != INACTIVE
    if trace.active_bytes is not None and trace.reserved_bytes is not None:
        assert exact_sum(state.block_bytes[live]) == int(trace.active_bytes[event + 1])
        assert exact_sum(state.segment_total_bytes) == int(trace.reserved_bytes[event + 1])
    if event == trace.event_count - 1:
        for name in ("segment_address", "segment_total_bytes", "segment_stream"):
            assert np.array_equal(getattr(state, name), getattr(trace.final, name)), name
        final = trace.final.block_state != INACTIVE
        for name in ("block_address", "block_bytes", "block_requested_bytes", "block_state"):
            assert np.array_equal(getattr(state, name)[live], getattr(trace.final, name)[final]), name


def check_frame(data: bytes) -> None:
    size = int.from_bytes(data[4:8], "little")
    header = orjson.loads(data[8 : 8 + size])
    drawn, width = header["drawn"], header["width"]
    start, end, _, level, low, high, rest, reserved = np.split(
        np.frombuffer(data, "<f8", 3 * drawn + 5 * width, 8 + size), np.cumsum([drawn] * 3 + [width] * 4)
    )
    assert np.all(np.isfinite(start))
    assert np.all(start <= end)
    assert np.all(rest >= 0), "rest below 0"
    assert np.all((low <= level) & (level <= high) & (low >= 0))
    assert np.all(np.isnan(reserved) | (reserved >= high))


def trimmed(content: Any, events: int) -> Tree:
    """Return a snapshot's dict with at most so many events of each device, as a shorter ring would have kept them."""
    found: Tree = {"segments": content} if isinstance(content, list) else content
    found["device_traces"] = [trace[-events:] for trace in found.get("device_traces", [])]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--events", type=int, default=400)
    options = parser.parse_args()
    warnings.simplefilter("error")
    dice, until_s = random.Random(options.seed), time.monotonic() + options.seconds
    asker = Asker(dice)
    contents = [trimmed(pickle.loads(path.read_bytes()), options.events) for path in options.files]
    faults: list[str] = []
    slowest_s, done, read = 0.0, 0, 0
    while done < options.count and time.monotonic() < until_s:
        which = done % len(contents)
        done += 1
        began_s = time.monotonic()
        try:
            content = mutant(contents[which], dice)
            try:
                snapshot = build_snapshot(content, container="", file_bytes=GIB, progress=lambda *_: None)
            except BadInputError as error:
                asker.refused[str(error).split(":")[0][:60]] += 1
                continue
            found = traced(snapshot)
            read += 1
            asker.ask(found)
        except Exception:  # noqa: BLE001 - what is looked for
            faults.append(f"{options.files[which].name}, mutant {done - 1}: {traceback.format_exc(limit=-4)}")
        slowest_s = max(slowest_s, time.monotonic() - began_s)
    kinds = Counter("\n".join(fault.splitlines()[-4:]) for fault in faults)
    told = {
        "mutants": done,
        "read": read,
        "slowest_s": round(slowest_s, 2),
        "refused": dict(asker.refused.most_common(40)),
        "faults": len(faults),
        "kinds": kinds.most_common(MOST_FAULTS),
        "first": faults[:MOST_FAULTS],
    }
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
