"""``vramscope info``: the figures of a snapshot file, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import Any

from vramscope.cli.opening import open_file
from vramscope.cli.printing import print_out
from vramscope.snapshot.opening import printable, shown
from vramscope.snapshot.summary import summarize_snapshot
from vramscope.units import MISSING, format_bytes

# (heading, key); bytes where the key says so.
COLUMNS = (
    ("device", "device"),
    ("reserved", "reserved_bytes"),
    ("allocated", "allocated_bytes"),
    ("active", "active_bytes"),
    ("requested", "requested_bytes"),
    ("inactive split", "inactive_split_bytes"),
    ("peak requested", "peak_requested_bytes"),
    ("peak active", "peak_active_bytes"),
    ("segments", "segments"),
    ("blocks", "blocks"),
    ("events", "events"),
)


def run(arguments: argparse.Namespace) -> int:
    """Print what ``arguments`` ask for. Raises BadInputError with one line where the file cannot be read."""
    found = {"file": shown(arguments.file), **summarize_snapshot(open_file(arguments.file, arguments.state_dir))}
    print_out(json.dumps(found, indent=1) if arguments.json else "\n".join(text_lines(found)))
    return 0


def text_lines(found: dict[str, Any]) -> list[str]:
    """Return the lines for people: a table with a row a device, then out-of-memories, settings and what is missing."""
    lines = [f"{found['file']}: {found['container']}, torch {found['torch_version_guess']} (guessed)", ""]
    rows = [[heading for heading, _ in COLUMNS]]
    rows += [[_cell(key, device[key]) for _, key in COLUMNS] for device in found["devices"]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    if found["host"] is not None:
        lines.append(f"pinned host memory: {format_bytes(found['host']['reserved_bytes'])} reserved")
    for device in found["devices"]:
        lines += [
            f"out of memory on device {device['device']} at event {oom['event']}: "
            f"{format_bytes(oom['rounded_request_bytes'])} asked, {format_bytes(oom['device_free_bytes'])} free on the device"
            for oom in device["oom"]
        ]
    conf = found["settings"].get("PYTORCH_CUDA_ALLOC_CONF")
    if conf:
        lines.append(f"PYTORCH_CUDA_ALLOC_CONF: {printable(str(conf))}")
    if found["ignored"]:
        names = ", ".join(f"{printable(name)} ({count})" for name, count in found["ignored"].items())
        lines.append(f"passed over, unknown to this version: {names}")
    return lines + [f"missing: {printable(line)}" for line in found["missing"]]


def _cell(key: str, value: int | None) -> str:
    if key.endswith("_bytes"):
        return format_bytes(value)
    return MISSING if value is None else str(value)
