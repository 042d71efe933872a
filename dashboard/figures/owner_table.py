"""The owners of a device's memory: totals by category, and the largest tensors as rows of the table."""

from __future__ import annotations

import re
from typing import Any

from vramscope.agent.categories import CODE
from vramscope.columns import DeviceMap
from vramscope.owners import BlockOwners, count, top_tensors, totals
from vramscope.units import MIB, format_address, format_bytes, format_ratio

MOST_ROWS = 300
# PyTorch's type names as tables of models write them: bf16, f32, i64.
_SHORT_TYPES = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}
_TYPE_START = re.compile("|".join(_SHORT_TYPES))
USUAL = ("parameter", "gradient", "optimizer state", "activation")


def rows(found: DeviceMap, owners: BlockOwners) -> list[dict[str, Any]]:
    """Return the largest owners as rows of the table; ``id`` stays the same while the owner stays where it is."""
    return [
        {
            "id": f"{row.address:x} {row.name}",
            "owner": row.category,
            "name": row.name or format_address(row.address),
            "shape": row.shape,
            "type": short_type(row.dtype),
            "dtype": row.dtype,
            "mib": row.bytes / MIB,
            "address": format_address(row.address),
        }
        for row in top_tensors(found, owners, MOST_ROWS)
    ]


def short_type(dtype: str | None) -> str | None:
    """Return "bf16" for "bfloat16", "f8_e4m3fn" for "float8_e4m3fn"; what has no short form stays as it is."""
    return None if dtype is None else _TYPE_START.sub(lambda start: _SHORT_TYPES[start[0]], dtype, count=1)


def shares(
    found: DeviceMap, owners: BlockOwners
) -> tuple[list[tuple[str, float]], list[tuple[str, str]], str | None, str]:
    """Return (colour, share of the active bytes) and (colour, text) for each category, the largest's colour, and the whole.

    The order is fixed, and the usual categories stay even when they are empty, so that the page does not jump with each step.
    """
    sums = totals(found, owners)
    whole = sum(sums.values()) or 1
    largest = max(sums, key=sums.__getitem__, default=None)
    names = [*USUAL, *(name for name in sums if name not in (*USUAL, "unknown")), "unknown"]
    bar = [(f"owner-{CODE[name]}", sums.get(name, 0) / whole) for name in names]
    texts = [
        (f"owner-{CODE[name]}", f"{name} {format_ratio(sums.get(name, 0) / whole)} · {format_bytes(sums.get(name, 0))}")
        for name in names
    ]
    colour = f"owner-{CODE[largest]}" if largest and sums[largest] else None
    return bar, texts, colour, f"of {format_bytes(sum(sums.values()))} active"


def note(owners: BlockOwners, row_count: int) -> str:
    """Return how much of what there is the table shows."""
    whole = count(owners)
    return f"{row_count:,} largest of {whole:,}" if whole > row_count else f"all {whole:,}"
