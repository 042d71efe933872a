"""Files that a browser sends in pieces, written to disk as they come; the folder never grows beyond its limit."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vramscope.agent.paths import make_private_folder
from vramscope.errors import VramscopeError
from vramscope.snapshot.limits import DEFAULT_LIMITS
from vramscope.snapshot.opening import printable
from vramscope.units import GIB, format_bytes

CHUNK_BYTES = 8 << 20
LIMIT_BYTES = 32 * GIB
# What an upload leaves free on the disk.
SPARED_BYTES = GIB
ABANDONED_AFTER_S = 3600.0
MOST_AT_ONCE = 16
LONGEST_NAME = 120
SUFFIX, PARTIAL_SUFFIX = ".snapshot", ".partial"


class UploadRefused(VramscopeError):
    """An upload, or a piece of one, that cannot be taken; ``status`` is HTTP's, ``received`` what is there already."""

    def __init__(self, line: str, status: int, received: int | None = None) -> None:
        super().__init__(line)
        self.status, self.received = status, received


@dataclass
class _Upload:
    name: str
    path: Path
    size_bytes: int
    touched_s: float
    received: int = 0
    is_over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Uploads:
    """The folder of uploads; ids are random, and names are labels that never become part of a path."""

    def __init__(self, folder: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Raises BadInputError where the folder cannot be made, or is open to others."""
        make_private_folder(folder, variable="VRAMSCOPE_STATE_DIR")
        self.folder, self._limit_bytes = folder, limit_bytes
        self._running: dict[str, _Upload] = {}
        self._lock = threading.Lock()
        for partial in folder.glob(f"*{PARTIAL_SUFFIX}"):
            # Another dashboard over the same folder may be receiving it.
            if _age_s(partial) > ABANDONED_AFTER_S:
                partial.unlink(missing_ok=True)

    def begin(self, name: str, size_bytes: int) -> str:
        """Return the id of a new upload of ``size_bytes``. Raises UploadRefused where it is too large, or the disk too full."""
        most = min(self._limit_bytes, DEFAULT_LIMITS.file_bytes)
        if not 0 < size_bytes <= most:
            raise UploadRefused(f"an upload has from 1 byte to {format_bytes(most)}", 413)
        with self._lock, self._on_disk():
            self._drop_abandoned()
            if len(self._running) >= MOST_AT_ONCE:
                raise UploadRefused(f"{MOST_AT_ONCE} uploads are running; wait for one to end, or cancel it", 429)
            promised = sum(upload.size_bytes - upload.received for upload in self._running.values())
            if shutil.disk_usage(self.folder).free < size_bytes + promised + SPARED_BYTES:
                raise UploadRefused(
                    f"the disk of {self.folder} has no room for {format_bytes(size_bytes)}; "
                    "free some, or open the file by its path with vramscope open",
                    507,
                )
            self._make_room(size_bytes)
            upload = secrets.token_hex(16)
            path = self.folder / f"{upload}{PARTIAL_SUFFIX}"
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            self._running[upload] = _Upload(label(name), path, size_bytes, time.monotonic())
            return upload

    def add(self, upload: str, offset: int, piece: bytes) -> int:
        """Append a piece at ``offset``, which must be where the last one ended. Returns the bytes received so far."""
        with self._held(upload) as found:
            if offset != found.received:
                raise UploadRefused(
                    f"the next piece begins at byte {found.received}, not {offset}", 409, found.received
                )
            if len(piece) > CHUNK_BYTES or offset + len(piece) > found.size_bytes:
                raise UploadRefused("this piece is larger than 8 MiB, or goes beyond the size that was announced", 413)
            with self._on_disk(), found.path.open("r+b") as file:
                file.seek(offset)
                file.write(piece)
            found.received += len(piece)
            found.touched_s = time.monotonic()
            return found.received

    def finish(self, upload: str) -> tuple[Path, str]:
        """Return the path of a complete upload, and its label. Raises UploadRefused where bytes are missing."""
        with self._held(upload) as found:
            if found.received != found.size_bytes:
                raise UploadRefused(
                    f"{found.size_bytes - found.received} bytes of this upload are missing", 409, found.received
                )
            path = found.path.with_suffix(SUFFIX)
            with self._on_disk():
                found.path.rename(path)
            self._end(upload, found)
        return path, found.name

    def cancel(self, upload: str) -> None:
        """End an upload and remove what came of it."""
        with self._held(upload) as found:
            self._end(upload, found)
            with self._on_disk():
                found.path.unlink(missing_ok=True)

    def owns(self, path: Path) -> bool:
        """Return whether ``path`` is a finished upload of this folder."""
        return path.parent == self.folder and path.suffix == SUFFIX

    @contextlib.contextmanager
    def _on_disk(self) -> Iterator[None]:
        """Raise UploadRefused where the disk is full, or the folder gone or without write permission."""
        try:
            yield
        except OSError as error:
            raise UploadRefused(f"cannot write to {self.folder}: {error.strerror}", 507) from None

    @contextlib.contextmanager
    def _held(self, upload: str) -> Iterator[_Upload]:
        """Yield a running upload, which is this thread's meanwhile. Raises UploadRefused where there is none."""
        found = self._running.get(upload)
        with contextlib.nullcontext() if found is None else found.lock:
            if found is None or found.is_over:
                raise UploadRefused("there is no such upload, or it has ended; begin it anew", 404)
            yield found

    def _end(self, upload: str, found: _Upload) -> None:
        found.is_over = True
        self._running.pop(upload, None)

    def _drop_abandoned(self) -> None:
        for upload, found in list(self._running.items()):
            if found.touched_s < time.monotonic() - ABANDONED_AFTER_S:
                self._end(upload, found)
                found.path.unlink(missing_ok=True)

    def _make_room(self, size_bytes: int) -> None:
        """Remove the oldest finished uploads until the new one fits; those that are open stay readable until closed."""
        finished = sorted(self.folder.glob(f"*{SUFFIX}"), key=_age_s, reverse=True)
        total = size_bytes + sum(upload.size_bytes for upload in self._running.values()) + sum(map(_bytes, finished))
        for path in finished:
            if total > self._limit_bytes:
                total -= _bytes(path)
                path.unlink(missing_ok=True)
        if total > self._limit_bytes:
            raise UploadRefused("too much is being uploaded at once; wait for it to end", 507)


def label(name: str) -> str:
    """Return the last part of a name that a browser gave, as one short line of plain characters."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return printable(last[:LONGEST_NAME]).strip() or "upload"


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
