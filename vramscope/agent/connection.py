"""The agent's end of the collector's socket: checked, never blocking, bounded, and whole frames or none."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from vramscope.agent.paths import check_private_folder
from vramscope.agent.wire import Decoder, Frame
from vramscope.errors import BadInputError

# The collector sends the agent small requests only.
MAX_INCOMING_PAYLOAD_BYTES = 1 << 20
MAX_QUEUED_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 18
_UCRED = struct.Struct("3i")


def dial(path: Path) -> socket.socket:
    """Return a non-blocking connection to the collector at ``path``, its folder and the peer's uid checked.

    Raises OSError where no collector answers, and BadInputError where the folder or the peer is not this user's.
    """
    if not os.path.lexists(path.parent):
        raise FileNotFoundError(f"no collector at {path}")
    check_private_folder(path.parent)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(os.fspath(path))
        _check_peer(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_peer(connection: socket.socket, path: Path) -> None:
    if not hasattr(socket, "SO_PEERCRED"):  # Linux has it; elsewhere the private folder has to do.
        return
    _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if uid != os.getuid():
        raise BadInputError(f"the process that answers at {path} has uid {uid}, not yours; it is not trusted")


class Connection:
    """Queues whole frames for a non-blocking socket and decodes what arrives.

    ``send`` may be called from any thread; the other methods belong to the agent's thread. A frame that does not fit is
    dropped and counted in ``dropped_frames``; one that was sent in part is finished before the next.
    """

    def __init__(self, connection: socket.socket, *, max_queued_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._socket = connection
        self._max_queued_bytes = max_queued_bytes
        self._lock = threading.Lock()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._decoder = Decoder(max_payload_bytes=MAX_INCOMING_PAYLOAD_BYTES)
        self.dropped_frames = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def send(self, frame: bytes) -> bool:
        """Queue a frame, or drop it where too much waits already (an empty queue takes a frame of any size)."""
        with self._lock:
            if self._queued_bytes and self._queued_bytes + len(frame) > self._max_queued_bytes:
                self.dropped_frames += 1
                return False
            self._queue.append(memoryview(frame))
            self._queued_bytes += len(frame)
            return True

    def flush(self) -> None:
        """Write what the socket takes now. Raises OSError where the peer is gone."""
        while self._queue:
            try:
                sent = self._socket.send(self._queue[0][:_CHUNK_BYTES])
            except BlockingIOError:
                return
            with self._lock:
                self._queued_bytes -= sent
                rest = self._queue[0][sent:]
                if rest:
                    self._queue[0] = rest
                else:
                    self._queue.popleft()

    def receive(self) -> Iterator[Frame]:
        """Yield the frames that have arrived. Raises OSError at the end of the stream, WireError at a broken one."""
        while True:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionResetError("the collector closed the connection")
            yield from self._decoder.feed(data)

    def close(self) -> None:
        """Close this process's end. What is still queued is lost; the collector discards a frame that ends early."""
        self._socket.close()
