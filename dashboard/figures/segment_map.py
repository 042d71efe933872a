"""The segment map as lines of pieces, ready to draw, and their binary frame.

A *row* is one segment, or one expandable reservation: the consecutive mapped ranges of the same stream, pool and size class.
PyTorch's snapshot does not say which ranges share a reservation, so their neighbourhood in the address space stands for it. What
lies between two ranges is drawn as unmapped. A row of more than two ``line_bytes`` goes on in further *lines*, and a block that
crosses the end of a line is cut into *pieces*.

The frame, little endian, each array at a multiple of its item size because the wider ones come first::

    magic b"VSM1" | header_bytes u32 | header, JSON, padded with spaces to a multiple of 8
    line_address f64[L]       address of the line's first byte (exact below 2**53)
    line_bytes   f64[L]       bytes that the full width of the line stands for
    gap_bytes    f64[K]       real bytes of each unmapped piece, which may be drawn shorter
    line_row     u32[L]       the row a line belongs to
    line_first   u32[L + 1]   first piece of each line
    gap_piece    u32[K]       the piece of each entry of gap_bytes
    piece_units  u32[N]       drawn size in units of 512 B
    row_stream   u8[R]        index into the header's ``streams``
    row_pool     u8[R]        index into the header's ``pools``
    row_flags    u8[R]        1 small pool, 2 expandable, 4 private pool, 8 a gap is drawn shorter than it is
    piece_state  u8[N]        as in vramscope.columns, and 3 unmapped; + 8 where it continues the piece before
    piece_owner  u8[N]        code of vramscope.agent.categories, 255 where no tensor lives

That is six bytes a block. The header has the counts ``L K N R`` as ``lines, gaps, pieces, rows``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dashboard.figures.frame import pack
from vramscope.columns import DeviceMap
from vramscope.owners import NO_OWNER
from vramscope.units import MIB

MAGIC = b"VSM1"
UNIT_BYTES = 512
UNMAPPED, CONTINUES = 3, 8
SMALL, EXPANDABLE, PRIVATE, SHORTENED = 1, 2, 4, 8
SORTS = ("size", "address")
POOLS = ("all", "large", "small")
# About this many lines show everything, whatever the job's size, so that one giant reservation is not one thin line.
LINES_IN_ALL = 48
LEAST_LINE_BYTES = 64 * MIB
# Streams and pools are told apart by a byte; the rare job with more sees its last ones under one label.
MOST_LABELS = 255

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Picture:
    """The arrays of the frame, as the module's docstring names them, and the labels of streams and pools."""

    line_address: F64
    line_bytes: F64
    gap_bytes: F64
    line_row: U32
    line_first: U32
    gap_piece: U32
    piece_units: U32
    row_stream: U8
    row_pool: U8
    row_flags: U8
    piece_state: U8
    piece_owner: U8
    streams: tuple[str, ...]
    pools: tuple[str, ...]


_ARRAYS = (
    *("line_address", "line_bytes", "gap_bytes", "line_row", "line_first", "gap_piece", "piece_units"),
    *("row_stream", "row_pool", "row_flags", "piece_state", "piece_owner"),
)


def encode(picture: Picture, header: Mapping[str, Any]) -> bytes:
    """Return the binary frame of ``picture`` with ``header`` (JSON values) in its head."""
    counts = {
        "lines": len(picture.line_row),
        "gaps": len(picture.gap_piece),
        "pieces": len(picture.piece_units),
        "rows": len(picture.row_stream),
        "streams": picture.streams,
        "pools": picture.pools,
    }
    return pack(MAGIC, {**header, **counts}, (getattr(picture, name) for name in _ARRAYS))


def build(found: DeviceMap, owner: U8, *, sort: str = "size", pool: str = "all") -> Picture:
    """Return the picture of ``found``; ``owner`` (B,) holds each block's category, 255 where it has none.

    ``sort`` is one of SORTS (largest row first, or by address), ``pool`` one of POOLS.
    """
    rows = _rows(found, sort=sort, pool=pool)
    spans = _spans(found, owner, rows)
    return _cut(spans, rows, found)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The chosen segments (S,) in drawing order, the row of each (S,), and per row (R,) its first segment and bytes."""

    segment: I64
    row: I64
    first_segment: I64
    mapped_bytes: I64


def _rows(found: DeviceMap, *, sort: str, pool: str) -> _Rows:
    chosen = np.arange(found.segment_count, dtype=np.int64)
    if pool != "all":
        chosen = chosen[found.segment_is_small.astype(bool) == (pool == "small")]
    if not len(chosen):
        nothing = np.empty(0, np.int64)
        return _Rows(nothing, nothing, nothing, nothing)
    keys: list[npt.NDArray[Any]] = [
        found.segment_stream,
        found.segment_pool_a,
        found.segment_pool_b,
        found.segment_is_small,
    ]
    joins = np.diff(chosen) == 1
    joins &= found.segment_is_expandable[chosen[1:]].astype(bool) & found.segment_is_expandable[chosen[:-1]].astype(
        bool
    )
    for key in keys:
        joins &= key[chosen[1:]] == key[chosen[:-1]]
    row = np.concatenate([np.zeros(1, np.int64), np.cumsum(~joins)])
    mapped = np.bincount(row, weights=found.segment_total_bytes[chosen].astype(np.float64)).astype(np.int64)
    if sort == "size":
        place = np.empty(len(mapped), np.int64)
        place[np.argsort(-mapped, kind="stable")] = np.arange(len(mapped))
        order = np.argsort(place[row], kind="stable")
        chosen, row = chosen[order], place[row][order]
        mapped = np.sort(mapped)[::-1]
    first = np.searchsorted(row, np.arange(len(mapped)))
    return _Rows(chosen, row, first.astype(np.int64), mapped)


@dataclass(frozen=True, eq=False)
class _Spans:
    """Blocks and gaps (M,) in drawing order: sizes in bytes as drawn and as they are, addresses, and looks."""

    row: I64
    address: I64
    drawn_bytes: I64
    real_bytes: I64
    state: U8
    owner: U8
    shortened_row: npt.NDArray[np.bool_]


def _spans(found: DeviceMap, owner: U8, rows: _Rows) -> _Spans:
    first = found.segment_first_block.astype(np.int64)
    counts = np.diff(first)[rows.segment]
    ends = np.cumsum(counts)
    block = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    block += np.repeat(first[:-1][rows.segment] - (ends - counts), counts)
    block_bytes = found.block_bytes.astype(np.int64)[block]
    # A gap goes before the first block of each segment that does not begin where the one before it in its row ended.
    address = found.segment_address.astype(np.int64)[rows.segment]
    end = address + found.segment_total_bytes.astype(np.int64)[rows.segment]
    gap_bytes = np.zeros(len(address), np.int64)
    same_row = rows.row[1:] == rows.row[:-1]
    gap_bytes[1:] = np.where(same_row, address[1:] - end[:-1], 0)
    at = np.flatnonzero(gap_bytes > 0)
    gap_row, real = rows.row[at], gap_bytes[at]
    most = np.maximum(rows.mapped_bytes[gap_row] // 8 // UNIT_BYTES * UNIT_BYTES, 2 * MIB)
    drawn = np.minimum(real, most)
    before = ends[at] - counts[at]
    shortened = np.zeros(len(rows.mapped_bytes), bool)
    shortened[gap_row[drawn < real]] = True
    return _Spans(
        row=np.insert(np.repeat(rows.row, counts), before, gap_row),
        address=np.insert(found.block_address.astype(np.int64)[block], before, address[at] - real),
        drawn_bytes=np.insert(block_bytes, before, drawn),
        real_bytes=np.insert(block_bytes, before, real),
        state=np.insert(found.block_state[block], before, UNMAPPED),
        owner=np.insert(owner[block], before, NO_OWNER),
        shortened_row=shortened,
    )


def _cut(spans: _Spans, rows: _Rows, found: DeviceMap) -> Picture:
    row_count = len(rows.mapped_bytes)
    row_bytes = np.bincount(spans.row, weights=spans.drawn_bytes.astype(np.float64), minlength=row_count).astype(
        np.int64
    )
    longest = line_bytes(int(rows.mapped_bytes.sum()))
    width = np.where(row_bytes > 2 * longest, longest, np.maximum(row_bytes, 1))
    row_lines = -(-row_bytes // width)
    first_line = np.cumsum(row_lines) - row_lines

    ends = np.cumsum(spans.drawn_bytes)
    row_start = np.cumsum(row_bytes) - row_bytes
    start = ends - spans.drawn_bytes - row_start[spans.row]
    end = start + spans.drawn_bytes
    span_width = width[spans.row]
    pieces = np.maximum(1, -(-end // span_width) - start // span_width)
    source = np.repeat(np.arange(len(start)), pieces)
    nth = np.arange(len(source)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    line_in_row = start[source] // span_width[source] + nth
    piece_start = np.maximum(start[source], line_in_row * span_width[source])
    piece_bytes = np.minimum(end[source], (line_in_row + 1) * span_width[source]) - piece_start
    line = first_line[spans.row[source]] + line_in_row

    line_count = int(row_lines.sum())
    line_first = np.searchsorted(line, np.arange(line_count + 1))
    state = spans.state[source]
    # A shortened gap shrinks evenly, so that the pieces of one that was cut still add up to its real size.
    scale = spans.real_bytes[source] / np.maximum(spans.drawn_bytes[source], 1)
    address = spans.address[source] + ((piece_start - start[source]) * scale).astype(np.int64)
    gap = np.flatnonzero(state == UNMAPPED)
    stream, streams = _labels(found.segment_stream[rows.segment[rows.first_segment]])
    pool_a = found.segment_pool_a[rows.segment[rows.first_segment]]
    pool_b = found.segment_pool_b[rows.segment[rows.first_segment]]
    pool, pools = _pool_labels(pool_a, pool_b)
    return Picture(
        line_address=address[line_first[:-1]].view(np.uint64).astype(np.float64),
        line_bytes=np.repeat(width, row_lines).astype(np.float64),
        gap_bytes=np.round(piece_bytes[gap] * scale[gap]),
        line_row=np.repeat(np.arange(row_count), row_lines).astype(np.uint32),
        line_first=line_first.astype(np.uint32),
        gap_piece=gap.astype(np.uint32),
        piece_units=(piece_bytes // UNIT_BYTES).astype(np.uint32),
        row_stream=stream,
        row_pool=pool,
        row_flags=_flags(found, rows, pool_a, pool_b, spans.shortened_row),
        piece_state=state + np.where(nth > 0, CONTINUES, 0).astype(np.uint8),
        piece_owner=spans.owner[source],
        streams=streams,
        pools=pools,
    )


def line_bytes(total_bytes: int) -> int:
    """Return the length of the lines that long rows are cut into: a power of two, so that growth seldom changes it."""
    wanted = max(LEAST_LINE_BYTES, -(-total_bytes // LINES_IN_ALL))
    return 1 << (wanted - 1).bit_length()


def _labels(values: npt.NDArray[np.uint64]) -> tuple[U8, tuple[str, ...]]:
    found, index = np.unique(values, return_inverse=True)
    return np.minimum(index, MOST_LABELS - 1).astype(np.uint8), tuple(
        str(value) for value in found.tolist()[:MOST_LABELS]
    )


def _pool_labels(pool_a: npt.NDArray[np.uint64], pool_b: npt.NDArray[np.uint64]) -> tuple[U8, tuple[str, ...]]:
    found, index = np.unique(np.stack([pool_a, pool_b], axis=1), axis=0, return_inverse=True)
    names = tuple(f"({a}, {b})" for a, b in found.tolist()[:MOST_LABELS])
    return np.minimum(index.reshape(-1), MOST_LABELS - 1).astype(np.uint8), names


def _flags(
    found: DeviceMap,
    rows: _Rows,
    pool_a: npt.NDArray[np.uint64],
    pool_b: npt.NDArray[np.uint64],
    shortened: npt.NDArray[np.bool_],
) -> U8:
    head = rows.segment[rows.first_segment]
    flags = np.where(found.segment_is_small[head], SMALL, 0) | np.where(
        found.segment_is_expandable[head], EXPANDABLE, 0
    )
    flags |= np.where((pool_a != 0) | (pool_b != 0), PRIVATE, 0) | np.where(shortened, SHORTENED, 0)
    return flags.astype(np.uint8)
