"""Segments by what tells them apart in two files: pool, kind, size class and stream."""

from __future__ import annotations

from collections.abc import Iterator

from vramscope.allocator.rounding import LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES
from vramscope.columns import DeviceMap
from vramscope.compare.rows import Part
from vramscope.units import MIB


def segment_parts(state: DeviceMap, *, same_file: bool) -> Iterator[Part]:
    """Yield each segment under its class.

    A stream other than the default one is a pointer: it means the same at two moments of one file, and nothing in another.
    """
    columns = (
        *(state.segment_total_bytes, state.segment_stream, state.segment_is_small, state.segment_is_expandable),
        *(state.segment_pool_a, state.segment_pool_b),
    )
    for size, stream, is_small, is_expandable, *pool in zip(*(column.tolist() for column in columns), strict=True):
        label = ", ".join(
            (
                "small" if is_small else "large",
                *((f"private pool ({pool[0]}, {pool[1]})",) if any(pool) else ()),
                "expandable" if is_expandable else size_class(size),
                _stream(stream, same_file),
            )
        )
        yield Part(label, label, size, 1)


def size_class(size_bytes: int) -> str:
    """Return the allocator's own segment sizes by name, others by the powers of two around them."""
    if size_bytes in (SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES):
        return f"{size_bytes // MIB} MiB"
    if size_bytes < MIB:
        return "under 1 MiB"
    low = 1 << (size_bytes // MIB).bit_length() - 1
    return f"from {low} to {2 * low} MiB"


def _stream(stream: int, same_file: bool) -> str:
    if not stream:
        return "default stream"
    return f"stream 0x{stream:x}" if same_file else "other streams"
