"""The protocol between agents, the collector and viewers: frames of a JSON header and raw columns.

A frame on the stream::

    magic b"VRSC" | version u8 | header_bytes u32 | payload_bytes u32 | header (UTF-8 JSON object) | payload

The header names the message in ``kind`` and describes the payload in ``columns``: a list of
``[name, typecode, count]`` in payload order, typecodes as in :mod:`struct` (``B I i q Q d``), little endian,
without padding. Unknown header fields and unknown columns are ignored; an unknown version is refused.
Standard library only: the training side imports this.
"""

from __future__ import annotations

import array
import json
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vramscope.errors import WireError

PROTOCOL_VERSION = 1
MAGIC = b"VRSC"
PREFIX = struct.Struct("<4sBII")
MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 256 << 20
ITEM_BYTES = {"B": 1, "I": 4, "i": 4, "q": 8, "Q": 8, "d": 8}


class Frame(NamedTuple):
    """One message: ``header`` always has a str ``kind``; ``payload`` holds the columns it describes."""

    header: dict[str, Any]
    payload: bytes

    @property
    def kind(self) -> str:
        return str(self.header["kind"])


def encode(header: Mapping[str, Any], columns: Mapping[str, array.array[Any] | bytes] | None = None) -> bytes:
    """Return the bytes of one frame.

    ``columns`` maps a name to an :class:`array.array` of a typecode in ``ITEM_BYTES`` or to bytes (sent as ``B``).
    Raises WireError when the frame would exceed the caps, so that the sender drops it instead of the receiver.
    """
    described, parts = [], []
    for name, column in (columns or {}).items():
        typecode, raw = _raw(column)
        described.append([name, typecode, len(raw) // ITEM_BYTES[typecode]])
        parts.append(raw)
    payload = b"".join(parts)
    text = json.dumps({**header, "columns": described}, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise WireError(
            f"a {header.get('kind')!r} message of {len(text)} + {len(payload)} bytes is over the protocol's limit of "
            f"{MAX_HEADER_BYTES} + {MAX_PAYLOAD_BYTES}; it was not sent"
        )
    return PREFIX.pack(MAGIC, PROTOCOL_VERSION, len(text), len(payload)) + text + payload


def _raw(column: array.array[Any] | bytes) -> tuple[str, bytes]:
    if isinstance(column, (bytes, bytearray, memoryview)):
        return "B", bytes(column)
    # array's I and L differ between platforms, so check instead of trusting the letter.
    if ITEM_BYTES.get(column.typecode) != column.itemsize:
        raise WireError(f"a column of typecode {column.typecode!r} cannot be sent; use one of {sorted(ITEM_BYTES)}")
    if sys.byteorder == "big":
        column = array.array(column.typecode, column)
        column.byteswap()
    return column.typecode, column.tobytes()


class Decoder:
    """Turns received bytes into frames; keeps what is incomplete. Pure: it never touches a socket.

    ``max_payload_bytes`` lets a peer that expects only small messages refuse large ones before they are buffered.
    """

    def __init__(self, *, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._buffer = bytearray()
        self._max_payload_bytes = max_payload_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not arrived in full."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterable[Frame]:
        """Yield each frame that ``data`` completes. Raises WireError at the first byte that cannot be right."""
        self._buffer += data
        while len(self._buffer) >= PREFIX.size:
            magic, version, header_bytes, payload_bytes = PREFIX.unpack_from(self._buffer)
            self._check(magic, version, header_bytes, payload_bytes)
            total = PREFIX.size + header_bytes + payload_bytes
            if len(self._buffer) < total:
                return
            raw = bytes(memoryview(self._buffer)[PREFIX.size : total])
            del self._buffer[:total]
            header = _header(raw[:header_bytes])
            payload = raw[header_bytes:]
            _check_columns(header, len(payload))
            yield Frame(header, payload)

    def _check(self, magic: bytes, version: int, header_bytes: int, payload_bytes: int) -> None:
        if magic != MAGIC:
            raise WireError("the peer does not speak vramscope's protocol; is another program using this socket?")
        if version != PROTOCOL_VERSION:
            raise WireError(
                f"the peer speaks protocol version {version} and this side {PROTOCOL_VERSION}; "
                "install the same vramscope in the job's environment and the collector's"
            )
        if header_bytes > MAX_HEADER_BYTES or payload_bytes > self._max_payload_bytes:
            raise WireError(f"the peer announced a message of {header_bytes} + {payload_bytes} bytes, over the limit")


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message's header is not JSON: {error.__class__.__name__}") from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise WireError("a message's header is not an object with a kind")
    return header


def _check_columns(header: dict[str, Any], payload_bytes: int) -> None:
    described = header.get("columns", [])
    try:
        sizes = [
            ITEM_BYTES[typecode] * count
            for name, typecode, count in described
            if type(count) is int and count >= 0 and str(name) == name
        ]
    except (TypeError, ValueError, KeyError):
        raise WireError(
            f"a {header['kind']!r} message describes its columns in a way this version cannot read"
        ) from None
    if len(sizes) != len(described) or sum(sizes) != payload_bytes:
        raise WireError(f"a {header['kind']!r} message's columns do not add up to its payload")


def columns(frame: Frame) -> dict[str, array.array[Any]]:
    """Return the frame's columns as arrays of the standard library (the collector uses numpy views instead)."""
    found: dict[str, array.array[Any]] = {}
    offset = 0
    for name, typecode, count in frame.header.get("columns", []):
        column: array.array[Any] = array.array(typecode)
        column.frombytes(frame.payload[offset : offset + ITEM_BYTES[typecode] * count])
        offset += ITEM_BYTES[typecode] * count
        if sys.byteorder == "big":
            column.byteswap()
        found[name] = column
    return found
