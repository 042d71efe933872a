"""The binary frames that pictures travel in: a magic, a JSON header, and columns; ``assets/binary_frame.js`` reads them.

Little endian, each column at a multiple of its item size where the wider ones come first::

    magic, 4 bytes | header_bytes u32 | header, JSON, padded with spaces to a multiple of 8 | columns
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt
import orjson


def pack(magic: bytes, header: Mapping[str, Any], columns: Iterable[npt.NDArray[Any]]) -> bytes:
    """Return the frame of ``columns``, each in its own type."""
    text = orjson.dumps(header)
    text += b" " * (-(len(text) + 8) % 8)
    parts = (column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes() for column in columns)
    return b"".join([magic, len(text).to_bytes(4, "little"), text, *parts])
