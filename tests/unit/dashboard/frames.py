"""Reads the segment map's binary frame as its docstring describes it: a second implementation, for tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

_LAYOUT = (
    ("line_address", "<f8", "lines"),
    ("line_bytes", "<f8", "lines"),
    ("gap_bytes", "<f8", "gaps"),
    ("line_row", "<u4", "lines"),
    ("line_first", "<u4", "lines_and_one"),
    ("gap_piece", "<u4", "gaps"),
    ("piece_units", "<u4", "pieces"),
    ("row_stream", "u1", "rows"),
    ("row_pool", "u1", "rows"),
    ("row_flags", "u1", "rows"),
    ("piece_state", "u1", "pieces"),
    ("piece_owner", "u1", "pieces"),
)


def decode(frame: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays; fails where bytes are missing, left over or not aligned."""
    assert frame[:4] == b"VSM1"
    header_bytes = int.from_bytes(frame[4:8], "little")
    header = json.loads(frame[8 : 8 + header_bytes])
    counts = {**header, "lines_and_one": header["lines"] + 1}
    arrays, offset = {}, 8 + header_bytes
    for name, dtype, count in _LAYOUT:
        item_bytes = np.dtype(dtype).itemsize
        assert offset % item_bytes == 0, f"{name} is not aligned"
        arrays[name] = np.frombuffer(frame, dtype, counts[count], offset)
        offset += item_bytes * counts[count]
    assert offset == len(frame)
    return header, arrays
