"""Bytes → plain objects: a refusing unpickler, JSON and MemoryViz pages, under gzip or zstd. Runs in the reader's child."""

from __future__ import annotations

import base64
import gzip
import importlib
import importlib.util
import io
import json
import pickle
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vramscope.errors import BadInputError

# What a file begins with.
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
REFUSED = {
    b"PK\x03\x04": "it is a zip archive (torch.save, or several files): unpack it, or write the snapshot with pickle.dump",
    b"SQLite format 3\0": "it is an SQLite database: write the snapshot with torch.cuda.memory._dump_snapshot",
}
DUMP_AGAIN = "dump it again with torch.cuda.memory._dump_snapshot"
PICKLE = b"\x80"
MAX_PROTOCOL = 5
# gzip in gzip happens, more is made to annoy.
MAX_LAYERS = 2
BUFFER_BYTES = 1 << 20
MAX_ZSTD_WINDOW_BYTES = 1 << 27
NOTHING_KNOWN = (
    "it is neither a pickle, nor JSON, nor a MemoryViz page; name what torch.cuda.memory._dump_snapshot wrote"
)

Progress = Callable[[int], None]


class RefusedError(BadInputError):
    """Bad input whose text says what to do about it; with any other, dumping again is what helps."""


@dataclass(frozen=True)
class Loaded:
    """The objects of a file; ``size_bytes`` is what they were read from, unpacked, and ``container`` says what it was."""

    tree: Any
    container: str
    size_bytes: int
    notes: tuple[str, ...] = ()


class CountingReader(io.RawIOBase):
    """Passes a stream on and tells how much was read. Raises BadInputError beyond ``limit_bytes``."""

    def __init__(self, inner: Any, limit_bytes: int, progress: Progress | None = None) -> None:
        self._inner, self._limit_bytes, self._progress = inner, limit_bytes, progress
        self.count_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._inner.readinto(buffer))
        self.count_bytes += count
        if self.count_bytes > self._limit_bytes:
            raise RefusedError(
                f"it unpacks to more than {self._limit_bytes >> 20} MiB; unpack it yourself if you trust it"
            )
        if self._progress is not None:
            self._progress(self.count_bytes)
        return count


class RefusingUnpickler(pickle.Unpickler):
    """Loads numbers, texts, lists and dicts; whatever would call or import something is refused."""

    def find_class(self, module: str, name: str) -> Any:
        named = f"{module}.{name}"[:100]
        raise RefusedError(
            f"it asks to import {named!r}, which no snapshot needs: do not open it with anything that would"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise BadInputError("it refers to objects outside of itself, which no snapshot does")


def load(source: io.RawIOBase, *, limit_bytes: int, progress: Progress) -> Loaded:
    """Return the objects of a file; ``progress`` is called with the bytes read of it.

    Raises BadInputError with what is wrong, as "it …", and any exception of pickle, json, gzip or zstd where the bytes are
    damaged.
    """
    counter = CountingReader(source, limit_bytes, progress)
    stream = io.BufferedReader(counter, BUFFER_BYTES)
    layers = []
    while (opened := _unpacked(stream)) is not None:
        layers.append(opened[0])
        if len(layers) > MAX_LAYERS:
            raise RefusedError("it is packed in itself again and again; unpack it yourself if you trust it")
        counter = CountingReader(opened[1], limit_bytes)
        stream = io.BufferedReader(counter, BUFFER_BYTES)
    tree, kind, notes = _read(stream)
    return Loaded(tree, " in ".join([kind, *reversed(layers)]), counter.count_bytes, notes)


def _unpacked(stream: io.BufferedReader[Any]) -> tuple[str, Any] | None:
    head = stream.peek(len(ZSTD))
    if head.startswith(GZIP):
        return "gzip", gzip.GzipFile(fileobj=stream)
    if head.startswith(ZSTD):
        return "zstd", _zstd(stream)
    return None


def _zstd(stream: io.BufferedReader[Any]) -> Any:
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd").ZstdFile(stream)
    if importlib.util.find_spec("zstandard") is None:
        raise RefusedError(f"it is packed with zstd; run: {sys.executable} -m pip install zstandard")
    zstandard = importlib.import_module("zstandard")
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    return decompressor.stream_reader(stream, read_across_frames=True)


def _read(stream: io.BufferedReader[Any]) -> tuple[Any, str, tuple[str, ...]]:
    head = stream.peek(64)
    for magic, reason in REFUSED.items():
        if head.startswith(magic):
            raise RefusedError(reason)
    if head.startswith(PICKLE):
        return _unpickle(stream)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return json.loads(stream.read()), "JSON", ()
    if text[:1] == b"<":
        return _page(stream.read())
    if not head.strip(b"\0"):
        raise BadInputError("it is empty: the dump was cut off before it began")
    raise RefusedError(NOTHING_KNOWN)


def _unpickle(stream: io.BufferedReader[Any]) -> tuple[Any, str, tuple[str, ...]]:
    protocol = stream.peek(2)[1:2]
    if not protocol or protocol[0] > MAX_PROTOCOL:
        raise RefusedError(NOTHING_KNOWN)
    tree = RefusingUnpickler(stream).load()
    more = 0
    while rest := stream.read(BUFFER_BYTES):
        more += len(rest.strip(b"\0"))
    notes = (f"{more} bytes follow the end of the snapshot; did several processes write to this file?",) if more else ()
    return tree, f"pickle, protocol {protocol[0]}", notes


def _page(text: bytes) -> tuple[Any, str, tuple[str, ...]]:
    """Read what ``torch.cuda._memory_viz.trace_plot`` embeds: a pickle, zero bytes after it, as base64."""
    starts = list(re.finditer(rb'"base64"\s*:\s*"', text))
    if not starts:
        raise BadInputError("it is a page without a snapshot in it")
    begin = starts[0].end()
    end = text.find(b'"', begin)
    if end < 0:
        raise BadInputError("it is a page that was cut off")
    tree, kind, notes = _unpickle(io.BufferedReader(io.BytesIO(base64.b64decode(text[begin:end], validate=True))))
    if len(starts) > 1:
        notes += (f"the page holds {len(starts)} snapshots; this is the first",)
    return tree, f"{kind} in a MemoryViz page", notes
