"""A collector in memory: accepts agents on a real socket, keeps every frame, and asks what a test wants. Standard library only."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.waiting import DEADLINE_S, wait_for
from vramscope.agent.paths import make_private_folder
from vramscope.agent.wire import Decoder, Frame, encode
from vramscope.errors import WireError


class FakeCollector:
    """Serves ``path`` in a thread. ``greeting`` is the header that answers a hello (a refusal closes the connection).

    With ``reads=False`` it accepts and then hangs. ``raw_greeting`` is sent as it is, for a collector of another version.
    """

    def __init__(
        self,
        path: Path,
        *,
        greeting: dict[str, Any] | None = None,
        raw_greeting: bytes | None = None,
        reads: bool = True,
        counters_hz: float = 50.0,
        map_interval_us: int = 100_000,
    ) -> None:
        self._greeting = greeting or {
            "kind": "welcome",
            "protocol": 1,
            "collector_version": "test",
            "counters_hz": counters_hz,
            "map_interval_us": map_interval_us,
        }
        self._raw_greeting = raw_greeting
        self.reads = reads
        self.frames: list[Frame] = []
        self.errors: list[str] = []
        self.accepted = 0
        self._path = path
        self._connections: list[socket.socket] = []
        make_private_folder(path.parent)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> FakeCollector:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Close everything, as a collector that is killed does, and take the socket's file away."""
        for connection in [self._listener, *self._connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._path.unlink(missing_ok=True)
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def of_kind(self, kind: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind == kind]

    def wait(self, kind: str, *, count: int = 1, where: Callable[[dict[str, Any]], bool] = bool) -> list[Frame]:
        """Return the frames of ``kind`` whose header fulfils ``where``, once there are ``count``."""

        def enough() -> list[Frame] | None:
            found = [frame for frame in self.of_kind(kind) if where(frame.header)]
            return found if len(found) >= count else None

        return wait_for(enough, f"{count} × {kind}")

    def request(self, request_id: int, what: str, **fields: Any) -> None:
        """Ask the agent that connected last."""
        self._connections[-1].sendall(encode({"kind": "request", "request_id": request_id, "what": what, **fields}))

    def answer_to(self, request_id: int) -> Frame:
        """Return the map or the reply that answers a request."""
        return wait_for(
            lambda: next((f for f in list(self.frames) if f.header.get("request_id") == request_id), None),
            f"the answer to request {request_id}",
        )

    def send_raw(self, data: bytes) -> None:
        self._connections[-1].sendall(data)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = Decoder()
        try:
            while data := connection.recv(1 << 16):
                for frame in decoder.feed(data):
                    self.frames.append(frame)
                    if frame.kind == "hello":
                        connection.sendall(self._raw_greeting or encode(self._greeting))
                        if self._greeting["kind"] == "refused":
                            connection.close()
                            return
                while not self.reads:
                    time.sleep(0.01)
            if decoder.pending_bytes:
                self.errors.append(f"the connection ended inside a frame ({decoder.pending_bytes} bytes pending)")
        except OSError:
            return
        except WireError as error:
            self.errors.append(str(error))
