"""PyTorch's snapshot as plain objects → frozen columns; the shape is checked level by level, without recursion."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from vramscope.errors import BadInputError
from vramscope.snapshot.all_stacks import is_beside, read_stacks
from vramscope.snapshot.columns import HOST, Annotations, Setting, Settings, Snapshot, Texts
from vramscope.snapshot.events import EventColumns
from vramscope.snapshot.fields import MASK_64, Codes, Ignored, Table, writable
from vramscope.snapshot.segments import SegmentList, device_snapshot, read_segments
from vramscope.snapshot.stacks import CHUNK
from vramscope.snapshot.versions import guess_version

TOP_KEYS = (
    "segments",
    "device_traces",
    "allocator_settings",
    "external_annotations",
    "host_segments",
    "host_traces",
)
# Memory is what a file with more events than this runs out of; taking those of a smaller one apart costs a quarter of a second.
EVENTS_KEPT = 2_000_000
# No record is shorter than this in a file, so more records than that are references to the same few.
LEAST_RECORD_BYTES = 8
MAX_DEVICES = 1024
# Settings are a page of text; what is more is not theirs.
MAX_SETTINGS, MAX_SETTING_LENGTH = 200, 10_000
STAGES = {"END": 0, "START": 1}

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Shared:
    """What is one for all devices of a snapshot."""

    texts: Codes
    ignored: Ignored


def build_snapshot(
    tree: Any, *, container: str, file_bytes: int, progress: Progress, notes: Sequence[str] = ()
) -> Snapshot:
    """Return the columns of ``tree``: a snapshot's dict, or a bare segment list. Long traces are emptied on the way.

    ``file_bytes`` is the size of what ``tree`` was read from; ``progress`` is called with the work done and all of
    it, in events. Raises BadInputError with what is wrong, as "its …", for a line that begins with the file's name.
    """
    is_list = isinstance(tree, list)
    top = _top(tree)
    traces = _traces(top.get("device_traces", []))
    traces.append(top.get("host_traces", []))
    tables = Table("segment", top["segments"]), Table("host segment", top.get("host_segments", []))
    _check_counts(tables, traces, file_bytes)

    texts, ignored = Codes(), Ignored()
    shared = _Shared(texts, ignored)
    segments, host_segments = (read_segments(table, ignored) for table in tables)
    step = _counter(traces, progress)
    lists = [each for found in (segments, host_segments) for each in (found.segment_frames, found.block_frames)]
    wait_for_stacks = read_stacks(lists, traces, texts, ignored, step)
    columns = _read_traces(traces, shared, step)
    of_lists, of_events, stacks = wait_for_stacks()
    host_events = columns.pop().build(of_events.pop())
    annotations = _annotations(top.get("external_annotations", []), shared)
    settings = _settings(top.get("allocator_settings", {}), ignored)
    for key in top.keys() - set(TOP_KEYS):
        ignored.add("top-level key", key)

    devices = _device_numbers(segments, len(columns))
    events = [column.build(stack) for column, stack in zip(columns, of_events, strict=True)]
    no_events = EventColumns(texts, ignored).build(np.empty(0, np.int32))
    of_devices = [events[number] if number < len(events) else no_events for number in devices]
    host = device_snapshot(host_segments, of_lists[2:], HOST, host_events)
    return Snapshot(
        container=container,
        torch_version_guess=_guess(top, is_list, segments, columns),
        devices=tuple(
            device_snapshot(segments, of_lists[:2], number, trace)
            for number, trace in zip(devices, of_devices, strict=True)
        ),
        host=host if host.state.segment_count or len(host.events) else None,
        stacks=stacks,
        texts=_texts(texts),
        annotations=annotations,
        settings=settings,
        ignored=ignored.as_dict(),
        notes=tuple(notes),
    )


def _top(tree: Any) -> dict[Any, Any]:
    if isinstance(tree, dict) and "segments" in tree:
        return tree
    if isinstance(tree, list) and all(isinstance(entry, dict) and "blocks" in entry for entry in tree):
        return {"segments": tree}
    raise BadInputError(f"it is not a memory snapshot but another {type(tree).__name__}, without segments")


def _traces(found: Any) -> list[list[Any]]:
    if not isinstance(found, list) or set(map(type, found)) - {list}:
        raise BadInputError("its device_traces are not lists of events")
    return found


def _check_counts(tables: Sequence[Table], traces: Sequence[Sequence[Any]], file_bytes: int) -> None:
    """Refuse lists that are short in the file and endless in memory: references to the same objects again and again."""
    if len(traces) > MAX_DEVICES:
        raise BadInputError(f"it has traces of {len(traces)} devices")
    blocks = sum(len(blocks) for table in tables for blocks in table.lists("blocks"))
    if (sum(map(len, traces)) + blocks + sum(map(len, tables))) * LEAST_RECORD_BYTES > file_bytes:
        raise BadInputError("it repeats the same few records without end")


def _counter(traces: Sequence[Sequence[Any]], progress: Progress) -> Callable[[int], None]:
    """Return what is told of events that are done, each once or, where their stacks are read here too, twice."""
    total, done = sum(map(len, traces)) * (1 if is_beside(traces) else 2), 0

    def step(events: int) -> None:
        nonlocal done
        done += events
        progress(done, total)

    return step


def _read_traces(traces: list[list[Any]], shared: _Shared, step: Callable[[int], None]) -> list[EventColumns]:
    """Return the columns of each trace, and empty ``traces`` on the way where they are long."""
    total = sum(map(len, traces))
    columns = []
    for place, trace in enumerate(traces):
        columns.append(EventColumns(shared.texts, shared.ignored))
        for start in range(0, len(trace), CHUNK):
            columns[-1].add(trace[start : start + CHUNK])
            step(min(CHUNK, len(trace) - start))
        if total > EVENTS_KEPT:
            traces[place] = []
    return columns


def _device_numbers(segments: SegmentList, traces: int) -> list[int]:
    """Return the devices that have segments or a trace, even an empty one, in order."""
    numbers = sorted({*np.unique(segments.device).tolist(), *range(traces)})
    if numbers and not 0 <= numbers[0] <= numbers[-1] < MAX_DEVICES:
        raise BadInputError(f"it has segments on devices {numbers[0]} to {numbers[-1]}")
    return numbers


def _annotations(found: Any, shared: _Shared) -> Annotations:
    table = Table("annotation", found)
    columns = Annotations(
        is_start=np.asarray(table.codes("stage", STAGES)).astype(np.uint8),
        name=np.asarray(table.codes("name", shared.texts)),
        device=np.asarray(table.signed("device")).astype(np.int32),
        time_us=np.asarray(table.signed("time_us")),
    )
    table.count_unknown(shared.ignored)
    return columns


def _settings(found: Any, ignored: Ignored) -> Settings:
    """Return the settings that are numbers and texts, and tables of such; others are counted."""
    if not isinstance(found, dict):
        raise BadInputError("its allocator_settings are not a record")
    settings: Settings = {}
    for key, value in list(found.items())[:MAX_SETTINGS]:
        given = list(value.items())[:MAX_SETTINGS] if isinstance(value, dict) else [("", value)]
        if isinstance(key, str) and all(_is_setting(own) for _, own in given):
            flat = {writable(str(name)): _setting(own) for name, own in given}
            settings[writable(key)] = flat if isinstance(value, dict) else flat[""]
        else:
            ignored.add("setting", key)
    return settings


def _is_setting(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(1 << 63) <= value <= MASK_64
    return value is None or (isinstance(value, str) and len(value) <= MAX_SETTING_LENGTH)


def _setting(value: Setting) -> Setting:
    return writable(value) if isinstance(value, str) else value


def _guess(top: dict[Any, Any], is_list: bool, segments: SegmentList, columns: Sequence[EventColumns]) -> str:
    present = {str(key) for key in top} | {f"event {key}" for column in columns for key in column.optional_keys()}
    judged = set() if is_list else {"host_segments", "external_annotations", "allocator_settings"}
    if any(map(len, columns)):
        judged |= {"event pool_id", "event user_metadata", "event compile_context", "event time_us"}
    if len(segments.device):
        judged.add("segment_pool_id")
        if segments.has_pools:
            present.add("segment_pool_id")
    return guess_version(present, judged)


def _texts(codes: Codes) -> Texts:
    encoded = [text.encode("utf-8", "replace") for text in codes]
    first = np.fromiter(accumulate(map(len, encoded), initial=0), np.uint64, len(encoded) + 1)
    return Texts(first=first, utf8=np.asarray(array("B", b"".join(encoded))))
