"""The memory of one device at one moment as frozen columns, from a wire frame or from PyTorch's own segment list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vramscope.agent.categories import CATEGORIES
from vramscope.agent.vocabulary import ACTIVE_ALLOCATED as ACTIVE_ALLOCATED
from vramscope.agent.vocabulary import ACTIVE_PENDING_FREE as ACTIVE_PENDING_FREE
from vramscope.agent.vocabulary import INACTIVE as INACTIVE
from vramscope.agent.vocabulary import STATE_CODE as STATE_CODE
from vramscope.agent.vocabulary import STATES as STATES
from vramscope.agent.wire import Frame
from vramscope.errors import WireError

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class DeviceMap:
    """Segments and blocks of one device, in address order; block sizes fill their segment without a gap.

    ``segment_*`` have shape (S,), ``block_*`` (B,), ``segment_first_block`` (S + 1,): the blocks of segment ``s`` are
    ``segment_first_block[s]:segment_first_block[s + 1]``. An expandable segment has one record for each contiguous
    mapped range, as in PyTorch's snapshot. ``block_requested_bytes`` is stale where the block is inactive.
    ``tensor_*`` (T,) are the tensors that the agent could name, with ``tensor_labels`` (name, shape, dtype) beside them.
    ``boundary_address`` holds the active blocks' addresses at the last end of a step, or None where none was seen.
    """

    device: int
    time_unix_us: int
    segment_address: U64
    segment_total_bytes: U64
    segment_stream: U64
    segment_pool_a: U64
    segment_pool_b: U64
    segment_is_small: U8
    segment_is_expandable: U8
    segment_first_block: U32
    block_address: U64
    block_bytes: U64
    block_requested_bytes: U64
    block_state: U8
    tensor_address: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    tensor_bytes: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    tensor_category: U8 = field(default_factory=lambda: np.empty(0, np.uint8))
    tensor_labels: tuple[tuple[str, str, str], ...] = ()
    boundary_address: U64 | None = None
    version: int = 0

    @property
    def segment_count(self) -> int:
        return len(self.segment_address)

    @property
    def block_count(self) -> int:
        return len(self.block_address)

    def block_segment(self) -> U32:
        """Return for each block the index of its segment, shape (B,)."""
        counts = np.diff(self.segment_first_block)
        return np.repeat(np.arange(self.segment_count, dtype=np.uint32), counts)


_SEGMENT_COLUMNS = ("address", "total_bytes", "stream", "pool_a", "pool_b", "is_small", "is_expandable", "first_block")
_BLOCK_COLUMNS = ("address", "bytes", "requested_bytes", "state")
REQUIRED = tuple(f"segment_{name}" for name in _SEGMENT_COLUMNS) + tuple(f"block_{name}" for name in _BLOCK_COLUMNS)
_TENSOR_COLUMNS = ("tensor_address", "tensor_bytes", "tensor_category")
_U8_COLUMNS = ("segment_is_small", "segment_is_expandable", "block_state", "tensor_category")
_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(np.uint64) for name in (*REQUIRED, *_TENSOR_COLUMNS, "boundary_address")
}
_TYPES |= {"segment_first_block": np.dtype(np.uint32), **dict.fromkeys(_U8_COLUMNS, np.dtype(np.uint8))}
_DTYPES = {"B": np.uint8, "I": np.uint32, "i": np.int32, "q": np.int64, "Q": np.uint64, "d": np.float64}


def frame_arrays(frame: Frame) -> dict[str, npt.NDArray[Any]]:
    """Return read-only numpy views of a frame's columns (little endian, as on the wire), by name."""
    found: dict[str, npt.NDArray[Any]] = {}
    offset = 0
    for name, typecode, count in frame.header.get("columns", []):
        dtype = np.dtype(_DTYPES[typecode]).newbyteorder("<")
        found[name] = np.frombuffer(frame.payload, dtype, count, offset)
        offset += dtype.itemsize * count
    return found


def from_frame(frame: Frame) -> DeviceMap:
    """Return the map that a ``map`` frame carries. Raises WireError when columns are missing or contradict each other."""
    arrays = frame_arrays(frame)
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise WireError(f"a map came without the columns {', '.join(missing)}; the job runs another vramscope")
    known = {name: values for name, values in arrays.items() if name in _TYPES}
    strange = [name for name, values in known.items() if values.dtype != _TYPES[name]]
    if strange:
        raise WireError(f"a map's columns {', '.join(strange)} are of another type; the job runs another vramscope")
    labels = _labels(arrays.get("tensor_labels"))
    optional = {name: known[name] for name in _TENSOR_COLUMNS if name in known}
    found = DeviceMap(
        device=_integer(frame.header, "device"),
        time_unix_us=_integer(frame.header, "time_unix_us"),
        version=_integer(frame.header, "version"),
        **{name: arrays[name] for name in REQUIRED},
        **optional,
        tensor_labels=labels,
        boundary_address=known.get("boundary_address"),
    )
    check(found)
    return found


def _integer(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"a map's {name} is not an integer")
    return value


def _labels(raw: npt.NDArray[Any] | None) -> tuple[tuple[str, str, str], ...]:
    if raw is None or not len(raw):
        return ()
    try:
        return tuple((_text(name), _text(shape), _text(dtype)) for name, shape, dtype in json.loads(raw.tobytes()))
    except (ValueError, TypeError, RecursionError):
        raise WireError("a map's tensor labels are not a list of (name, shape, dtype)") from None


def _text(value: object) -> str:
    """Return ``value`` as text that can be written as UTF-8: JSON lets half of a surrogate pair through."""
    return str(value).encode(errors="replace").decode()


def check(found: DeviceMap) -> None:
    """Raise WireError unless the columns of ``found`` agree: lengths, order, and blocks that fill their segments."""
    segments, blocks, tensors = found.segment_count, found.block_count, len(found.tensor_address)
    lengths = [len(getattr(found, f"segment_{name}")) == segments for name in _SEGMENT_COLUMNS[:-1]]
    lengths += [len(getattr(found, f"block_{name}")) == blocks for name in _BLOCK_COLUMNS]
    lengths += [len(c) == tensors for c in (found.tensor_bytes, found.tensor_category, found.tensor_labels)]
    first = found.segment_first_block
    if not all(lengths) or len(first) != segments + 1 or int(first[0]) != 0 or int(first[-1]) != blocks:
        raise WireError("a map's columns have lengths that contradict each other")
    if segments and (
        np.any(np.diff(first.astype(np.int64)) < 1) or np.any(found.segment_address[1:] <= found.segment_address[:-1])
    ):
        raise WireError("a map's segments are empty or out of order")
    if np.any(found.segment_address[:-1] + found.segment_total_bytes[:-1] > found.segment_address[1:]):
        raise WireError("a map's segments overlap")
    if blocks and int(found.block_state.max()) >= len(STATES):
        raise WireError("a map has a block state that this version does not know")
    if len(found.tensor_category) and int(found.tensor_category.max()) >= len(CATEGORIES):
        raise WireError("a map has an owner category that this version does not know")
    if np.any(found.tensor_address + found.tensor_bytes < found.tensor_address):
        raise WireError("a map has a tensor that ends before it begins")
    if segments and not _blocks_fill_segments(found):
        raise WireError("a map's blocks do not fill their segments")


def _blocks_fill_segments(found: DeviceMap) -> bool:
    """Return whether each block begins where the one before ends, from the segment's start to its end."""
    starts = found.segment_first_block[:-1].astype(np.intp)
    ends = found.block_address + found.block_bytes
    expected = np.empty_like(found.block_address)
    expected[1:] = ends[:-1]
    expected[starts] = found.segment_address
    lasts = found.segment_first_block[1:].astype(np.intp) - 1
    # An end below its start has overflowed 64 bits.
    return bool(
        np.array_equal(found.block_address, expected)
        and np.array_equal(ends[lasts], found.segment_address + found.segment_total_bytes)
        and np.all(ends > found.block_address)
    )


def from_segments(segments: Iterable[Mapping[str, Any]], *, device: int, time_unix_us: int = 0) -> DeviceMap:
    """Return the map of ``device`` from PyTorch's segment list (``torch.cuda.memory_snapshot()``), sorted by address.

    Segments of other devices are left out. Raises KeyError or ValueError where a key of torch 2.1's format is missing.
    """
    ours = sorted((s for s in segments if s["device"] == device), key=lambda s: int(s["address"]))
    blocks: list[Mapping[str, Any]] = [b for s in ours for b in s["blocks"]]
    pools = [tuple(s.get("segment_pool_id", (0, 0))) for s in ours]
    counts = np.array([len(s["blocks"]) for s in ours], np.uint32)

    def u64(values: Sequence[int]) -> U64:
        # Streams may be pointers printed as negative integers; the mask keeps their 64 bits.
        return np.array([int(v) & 0xFFFF_FFFF_FFFF_FFFF for v in values], np.uint64)

    return DeviceMap(
        device=device,
        time_unix_us=time_unix_us,
        segment_address=u64([s["address"] for s in ours]),
        segment_total_bytes=u64([s["total_size"] for s in ours]),
        segment_stream=u64([s["stream"] for s in ours]),
        segment_pool_a=u64([p[0] for p in pools]),
        segment_pool_b=u64([p[1] for p in pools]),
        segment_is_small=np.array([s["segment_type"] == "small" for s in ours], np.uint8),
        segment_is_expandable=np.array([bool(s.get("is_expandable")) for s in ours], np.uint8),
        segment_first_block=np.concatenate([np.zeros(1, np.uint32), np.cumsum(counts, dtype=np.uint32)]),
        block_address=u64([b["address"] for b in blocks]),
        block_bytes=u64([b["size"] for b in blocks]),
        block_requested_bytes=u64([b["requested_size"] for b in blocks]),
        block_state=np.array([STATE_CODE[b["state"]] for b in blocks], np.uint8),
    )


def to_segments(found: DeviceMap) -> list[dict[str, Any]]:
    """Return the map in PyTorch's own form (a segment list without frames), as ``/api/v1/…/map`` gives it."""
    result = []
    bounds = found.segment_first_block.tolist()
    blocks = [
        {"address": a, "size": n, "requested_size": r, "state": STATES[s]}
        for a, n, r, s in zip(
            found.block_address.tolist(),
            found.block_bytes.tolist(),
            found.block_requested_bytes.tolist(),
            found.block_state.tolist(),
            strict=True,
        )
    ]
    for index in range(found.segment_count):
        own = blocks[bounds[index] : bounds[index + 1]]
        active = [b for b in own if b["state"] != "inactive"]
        result.append(
            {
                "device": found.device,
                "address": int(found.segment_address[index]),
                "total_size": int(found.segment_total_bytes[index]),
                "stream": int(found.segment_stream[index]),
                "segment_type": "small" if found.segment_is_small[index] else "large",
                "segment_pool_id": [int(found.segment_pool_a[index]), int(found.segment_pool_b[index])],
                "is_expandable": bool(found.segment_is_expandable[index]),
                "allocated_size": sum(b["size"] for b in own if b["state"] == "active_allocated"),
                "active_size": sum(b["size"] for b in active),
                "requested_size": sum(b["requested_size"] for b in active),
                "blocks": own,
            }
        )
    return result
