"""``vramscope replay``: what the recorded allocations would have taken under other settings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from vramscope.allocator import Settings
from vramscope.cli.opening import open_file
from vramscope.cli.printing import print_out
from vramscope.compare.side import trace_of_device
from vramscope.errors import BadInputError
from vramscope.replay.recording import recording_of
from vramscope.replay.run import Failure, Replay
from vramscope.replay.what_if import WhatIf, settings_of_texts, what_if
from vramscope.snapshot.opening import printable, shown
from vramscope.units import MISSING, format_bytes

HEADINGS = (
    "settings",
    "peak reserved",
    "peak active",
    "stranded at peak",
    "retries",
    "device mallocs",
    "out of memory",
)


def run(arguments: argparse.Namespace) -> int:
    """Print what ``arguments`` ask for. Raises BadInputError with one line where the file or the settings cannot be used."""
    others = settings_of_texts(arguments.alloc_conf, knows_capacity=arguments.capacity is not None)
    traced = open_file(arguments.file, arguments.state_dir)
    name = shown(arguments.file)
    trace = trace_of_device(traced, arguments.device, name)
    try:
        recording = recording_of(traced.snapshot, trace)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from None
    progress = _show_progress if sys.stderr.isatty() else _show_nothing
    found = what_if(recording, trace, others, capacity_bytes=arguments.capacity, progress=progress)
    print_out(json.dumps(as_json(found), indent=1) if arguments.json else "\n".join(text_lines(name, found, others)))
    return 0


def _show_nothing(done: int, total: int) -> None:
    pass


def _show_progress(done: int, total: int) -> None:
    """Show on the terminal how far it is; the line goes away at the end."""
    sys.stderr.write("\r\x1b[K" if done == total else f"\r\x1b[Kreplaying: {done} of {total} settings done")
    sys.stderr.flush()


def as_json(found: WhatIf) -> list[dict[str, Any]]:
    """Return a dict for each settings, the recorded ones first; only these can be compared with the recording."""
    fidelity = found.fidelity
    shares = {"addresses": fidelity.addresses, "segments": fidelity.segments, "peak": fidelity.peak}
    recorded, *others = found.replays
    doubts = [*found.explained, *found.recording.doubts]
    rows = [_row(recorded, shares, doubts)]
    return rows + [_row(other, dict.fromkeys(shares), list(other.settings.warnings)) for other in others]


def _row(found: Replay, fidelity: dict[str, float | None], doubts: list[str]) -> dict[str, Any]:
    return {
        "alloc_conf": found.settings.text,
        "peak_reserved_bytes": found.peak_reserved_bytes,
        "peak_active_bytes": found.peak_active_bytes,
        "stranded_at_peak_bytes": found.stranded_at_peak_bytes,
        "retries": found.retries,
        "device_mallocs": found.device_mallocs,
        "oom": None if found.oom is None else found.oom._asdict(),
        "ran_through": found.ran_through,
        "fidelity": fidelity,
        "doubts": doubts,
    }


def text_lines(name: str, found: WhatIf, others: list[Settings]) -> Iterator[str]:
    """Yield the lines for people: the fidelity, a table with a row for each settings, and the doubts."""
    recording, fidelity = found.recording, found.fidelity
    yield f"{name}, device {recording.device}: {len(recording.operations)} requests, frees and releases"
    yield (
        "like the recording under the recorded settings: "
        f"addresses {_share(fidelity.addresses)}, segments {_share(fidelity.segments)}, peak {_share(fidelity.peak)}"
    )
    yield from (f"  {line}" for line in found.explained)
    capacity_bytes = found.replays[0].capacity_bytes
    is_known = capacity_bytes != recording.ample_bytes
    yield f"room for the process: {format_bytes(capacity_bytes) if is_known else 'not known, none runs out of memory'}"
    yield ""
    rows = [HEADINGS, *(_cells(replay, is_recorded=not place) for place, replay in enumerate(found.replays))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        yield "  ".join(cells)
    for settings in others:
        yield from (f"{settings.text}: {line}" for line in settings.warnings)
    yield from (f"doubt: {printable(line)}" for line in recording.doubts)


def _cells(found: Replay, *, is_recorded: bool) -> tuple[str, ...]:
    text = printable(found.settings.text) or "defaults"
    return (
        f"recorded: {text}" if is_recorded else text,
        format_bytes(found.peak_reserved_bytes),
        format_bytes(found.peak_active_bytes),
        format_bytes(found.stranded_at_peak_bytes),
        str(found.retries),
        str(found.device_mallocs),
        "no" if found.oom is None else _failure(found.oom, ends=not found.ran_through),
    )


def _failure(oom: Failure, *, ends: bool) -> str:
    return f"{format_bytes(oom.size_bytes)} at event {oom.event}{', ended there' if ends else ''}"


def _share(share: float | None) -> str:
    if share is None:
        return MISSING
    # Nothing but all of it is 100 %.
    return "100 %" if share == 1 else f"{min(share * 100, 99.9):.1f} %"
