"""A snapshot's columns, and its traces', in one file: a magic, a JSON header and raw arrays, read back as views of a memory map."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from vramscope.columns import DeviceMap
from vramscope.errors import VramscopeError
from vramscope.snapshot.columns import Annotations, DeviceSnapshot, Events, Snapshot, Stacks, Texts
from vramscope.trace.columns import Allocations, DeviceTrace, Peak, SegmentSpans, TracedSnapshot

# The number at its end is the format's version: with another, files of an older vramscope are not read.
MAGIC = b"VRAMSNP2"
HEAD_BYTES = len(MAGIC) + 8
ALIGNMENT_BYTES = 64
# Whole numbers and truths only: numpy reads no objects from a file that another process wrote.
DTYPES = ("|b1", "|u1", "<u4", "<i4", "<u8", "<i8")

Arrays = dict[str, npt.NDArray[Any]]
NESTED: dict[str, type[Any]] = {
    "devices": DeviceSnapshot,
    "host": DeviceSnapshot,
    "state": DeviceMap,
    "events": Events,
    "stacks": Stacks,
    "texts": Texts,
    "annotations": Annotations,
    "snapshot": Snapshot,
    "traces": DeviceTrace,
    "final": DeviceMap,
    "allocations": Allocations,
    "segments": SegmentSpans,
    "peak_active": Peak,
    "peak_requested": Peak,
}


class StorageError(VramscopeError):
    """The file is not one that this version wrote, or not all of it."""


def write_traced(traced: TracedSnapshot, file: BinaryIO) -> None:
    """Write ``traced`` as :func:`read_traced` reads it; an array that stands in several places is written once."""
    arrays: Arrays = {}
    tree = _plain(traced, "", arrays, {})
    columns, offset = [], 0
    for name, column in arrays.items():
        columns.append([name, column.dtype.newbyteorder("<").str, len(column), offset])
        offset += column.nbytes + -column.nbytes % ALIGNMENT_BYTES
    header = json.dumps({"traced": tree, "columns": columns, "payload_bytes": offset}).encode()
    header += b" " * (-(HEAD_BYTES + len(header)) % ALIGNMENT_BYTES)
    file.write(MAGIC + len(header).to_bytes(8, "little") + header)
    for column in arrays.values():
        file.write(np.ascontiguousarray(column.astype(column.dtype.newbyteorder("<"), copy=False)).data)
        file.write(b"\0" * (-column.nbytes % ALIGNMENT_BYTES))


def read_traced(path: Path) -> TracedSnapshot:
    """Return the snapshot and its traces in ``path``; its columns are read-only views of the file, which may be removed meanwhile.

    Raises StorageError where the file is not whole or contradicts itself, and OSError where it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        length = int.from_bytes(head[len(MAGIC) :], "little")
        size = path.stat().st_size
        if head[: len(MAGIC)] != MAGIC or HEAD_BYTES + length > size:
            raise StorageError(f"{path} is not a file of parsed columns; remove it")
        payload = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        header = json.loads(payload[HEAD_BYTES : HEAD_BYTES + length])
        start = HEAD_BYTES + length
        if start + header["payload_bytes"] != size:
            raise StorageError(f"{path} is cut off; remove it")
        arrays = {name: _array(payload, start, *place) for name, *place in header["columns"]}
        restored: TracedSnapshot = _restored(TracedSnapshot, header["traced"], arrays)
        return restored
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} is damaged ({error}); remove it") from None


def _array(payload: mmap.mmap, start: int, dtype: str, count: int, offset: int) -> npt.NDArray[Any]:
    if dtype not in DTYPES:
        raise ValueError(f"a column of {dtype}")
    return np.frombuffer(payload, dtype, count, start + offset) if count else np.empty(0, dtype)


def _plain(value: Any, name: str, arrays: Arrays, names: dict[int, str]) -> Any:
    """Return ``value`` as JSON can hold it, with arrays replaced by their names and put into ``arrays``.

    ``names`` has the name of each array by its identity.
    """
    if isinstance(value, np.ndarray):
        known = names.setdefault(id(value), name)
        arrays[known] = value
        return {"column": known}
    if isinstance(value, tuple):
        return [_plain(entry, f"{name}{place}.", arrays, names) for place, entry in enumerate(value)]
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name), f"{name}{f.name}.", arrays, names) for f in fields(value)}
    return value


def _restored(kind: type[Any], tree: Mapping[str, Any], arrays: Arrays) -> Any:
    return kind(**{name: _value(NESTED.get(name), value, arrays) for name, value in tree.items()})


def _value(kind: type[Any] | None, value: Any, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return tuple(_value(kind, entry, arrays) for entry in value)
    if isinstance(value, dict) and kind is not None:
        return _restored(kind, value, arrays)
    return arrays[value["column"]] if isinstance(value, dict) and value.keys() == {"column"} else value
