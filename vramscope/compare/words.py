"""A comparison as lines for people and as JSON; both have the largest differences first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vramscope.compare.difference import Difference
from vramscope.compare.rows import Row, cut
from vramscope.compare.side import Side
from vramscope.snapshot.opening import printable
from vramscope.units import MISSING, format_bytes

TOTAL_NAMES = {
    "reserved_bytes": "reserved",
    "allocated_bytes": "allocated",
    "active_bytes": "active",
    "requested_bytes": "requested",
    "free_cached_bytes": "cached and free",
    "inactive_split_bytes": "inactive split",
    "largest_free_block_bytes": "largest free block",
    "segments": "segments",
    "blocks": "blocks",
    "peak_active_bytes": "peak active in trace",
    "peak_requested_bytes": "peak requested in trace",
}
# (attribute of Difference, heading, what is counted)
TABLES = (
    ("categories", "live bytes by owner (estimate, by stack)", "blocks"),
    ("sites", "live bytes by allocation site (the first frame outside torch)", "blocks"),
    ("segments", "reserved bytes by kind of segment", "segments"),
)


def title(side: Side) -> str:
    """Return what a side is in one line."""
    return printable(f"{side.name}, device {side.trace.device}, {side.when}")


def signed(name: str, value: int | None) -> str:
    """Return a difference with its sign; what ends in ``_bytes`` in units."""
    if value is None:
        return MISSING
    return f"{'+' if value > 0 else ''}{amount(name, value)}"


def amount(name: str, value: int | None) -> str:
    """Return a figure; what ends in ``_bytes`` in units."""
    if value is None:
        return MISSING
    return format_bytes(value) if name.endswith("_bytes") else str(value)


def text_lines(found: Difference, *, top: int) -> list[str]:
    """Return the lines for people: totals, then a table each with at most ``top`` rows and one for the others."""
    lines = [f"A: {title(found.a)}", f"B: {title(found.b)}", ""]
    rows = [
        (
            signed(total.name, total.difference),
            amount(total.name, total.a),
            amount(total.name, total.b),
            TOTAL_NAMES[total.name],
        )
        for total in found.totals
    ]
    lines += _aligned([("difference", "A", "B", ""), *rows])
    for attribute, heading, counted in TABLES:
        lines += ["", heading, *_table(cut(getattr(found, attribute), top), counted)]
    lines += [
        "",
        f"{sum(row.change != 'the same' for row in found.stacks)} whole stacks differ: --json has their frames",
    ]
    return lines + [f"note: {printable(line)}" for line in found.notes]


def _table(rows: Sequence[Row], counted: str) -> list[str]:
    cells = [
        (
            signed("_bytes", row.difference_bytes),
            format_bytes(row.a_bytes),
            format_bytes(row.b_bytes),
            f"{row.a_count} → {row.b_count}",
            f"{row.change:<9}  {printable(row.label)}",
        )
        for row in rows
    ]
    return _aligned([("difference", "A", "B", counted, ""), *cells]) if cells else ["nothing on either side"]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines whose columns stand right, but for the last, which stands left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for *cells, last in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths, strict=False))
        lines.append("  ".join((*padded, last)).rstrip())
    return lines


def as_json(found: Difference, *, top: int | None) -> dict[str, Any]:
    """Return the comparison as JSON can hold it, in bytes; tables with at most ``top`` rows and one for the others."""
    tables = {
        attribute: [_row(found, row, with_frames=attribute == "stacks") for row in _cut(getattr(found, attribute), top)]
        for attribute in ("categories", "sites", "stacks", "segments")
    }
    totals = {total.name: {"a": total.a, "b": total.b, "difference": total.difference} for total in found.totals}
    return {"a": _side(found.a), "b": _side(found.b), "totals": totals, **tables, "notes": list(found.notes)}


def _cut(rows: Sequence[Row], top: int | None) -> Sequence[Row]:
    return rows if top is None else cut(rows, top)


def _side(side: Side) -> dict[str, Any]:
    event, times = side.moment.event, side.trace.events.time_us
    return {
        "file": printable(side.name),
        "device": side.trace.device,
        "event": event,
        "time_us": None if times is None or not 0 <= event < len(times) else int(times[event]),
        "moment": side.when,
    }


def _row(found: Difference, row: Row, *, with_frames: bool) -> dict[str, Any]:
    named = {
        "name": row.label,
        "change": row.change,
        "difference_bytes": row.difference_bytes,
        "a_bytes": row.a_bytes,
        "b_bytes": row.b_bytes,
        "a_count": row.a_count,
        "b_count": row.b_count,
    }
    return named | {"frames": [list(frame) for frame in frames_of(found, row)]} if with_frames else named


def frames_of(found: Difference, row: Row) -> list[tuple[str, int, str]]:
    """Return the frames of ``row``'s stack, from the innermost out; those of A where both sides have it."""
    if row.stack_a is not None:
        return found.a.traced.snapshot.frames(row.stack_a)
    return [] if row.stack_b is None else found.b.traced.snapshot.frames(row.stack_b)
