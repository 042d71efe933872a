"""A viewer's connection to the collector: blocking calls, from any thread, over one socket that is opened again when lost."""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collectors.peer import check_peer
from vramscope.agent.paths import check_private_folder, socket_path
from vramscope.agent.wire import PROTOCOL_VERSION, Decoder, Frame, encode
from vramscope.errors import VramscopeError

CONNECT_TIMEOUT_S = 2.0
# A collector that did not answer in time hangs: only one call in so long waits for it again, the others fail at once.
SILENCE_S = 2.0
RECEIVE_BYTES = 1 << 18


class CollectorAway(VramscopeError):
    """No collector answers on the socket."""


class CollectorSilent(CollectorAway):
    """A collector is there, and did not answer in time."""


class CallRefused(VramscopeError):
    """The collector answered that it cannot do what was asked; the text is its one line."""


class Client:
    """Calls the collector of ``runtime_folder``. Replies may arrive in any order, so threads do not wait for each other."""

    def __init__(self, runtime_folder: Path) -> None:
        self._folder = runtime_folder
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._ask_from_s: float | None = None

    def call(self, method: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = 3.0) -> Frame:
        """Return the reply's frame: ``header["result"]`` and, for a map, its columns.

        Raises CollectorAway where nobody answers in time, and CallRefused with the collector's own line.
        """
        link = self._connected()
        with self._noting_silence():
            reply = link.call(method, params or {}, timeout_s)
        if not reply.header.get("ok"):
            raise CallRefused(str(reply.header.get("error") or f"the collector refused {method!r} without a reason"))
        return reply

    def close(self) -> None:
        with self._lock:
            if self._link is not None:
                self._link.close()
                self._link = None

    def _connected(self) -> _Link:
        with self._lock:
            if self._ask_from_s is not None:
                if time.monotonic() < self._ask_from_s:
                    raise CollectorAway(f"the collector does not answer; it is asked again every {SILENCE_S:g} s")
                self._ask_from_s = time.monotonic() + SILENCE_S
            if self._link is None or self._link.broken:
                with self._noting_silence():
                    self._link = _Link(_connect(self._folder))
            return self._link

    @contextlib.contextmanager
    def _noting_silence(self) -> Iterator[None]:
        """Remember whether the collector was silent in this block, or was heard, or has gone."""
        try:
            yield
        except CollectorSilent:
            self._ask_from_s = time.monotonic() + SILENCE_S
            raise
        except CollectorAway:
            self._ask_from_s = None
            raise
        self._ask_from_s = None


def _connect(folder: Path) -> socket.socket:
    """Return a connected socket that the collector has welcomed."""
    path = socket_path(folder)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_TIMEOUT_S)
    try:
        check_private_folder(folder)
        connection.connect(str(path))
        check_peer(connection)
        connection.sendall(encode({"kind": "hello", "role": "viewer", "protocol": PROTOCOL_VERSION}))
        _await_welcome(connection)
    except TimeoutError:
        connection.close()
        raise CollectorSilent(f"the collector at {path} did not say welcome within {CONNECT_TIMEOUT_S:g} s") from None
    except OSError as error:
        connection.close()
        raise CollectorAway(
            f"no collector answers at {path}: {error.strerror or error}; run: vramscope collect"
        ) from None
    except VramscopeError:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def _await_welcome(connection: socket.socket) -> None:
    decoder = Decoder()
    while True:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise CollectorAway("the collector closed the connection before it said welcome; is it stopping?")
        for frame in decoder.feed(data):
            if frame.kind == "welcome":
                return
            raise CallRefused(str(frame.header.get("message", "the collector refused the connection")))


class _Link:
    """One live socket and the thread that hands its replies to the callers who wait for them."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Frame | None]] = {}
        self.broken = False
        threading.Thread(target=self._receive, name="vramscope-client", daemon=True).start()

    def call(self, method: str, params: Mapping[str, Any], timeout_s: float) -> Frame:
        answer: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        call_id = next(self._ids)
        self._waiting[call_id] = answer
        try:
            with self._sending:
                self._socket.sendall(
                    encode({"kind": "call", "call_id": call_id, "method": method, "params": dict(params)})
                )
            # The receiving thread may have gone between the check in Client and now; then nobody would answer.
            reply = None if self.broken else answer.get(timeout=timeout_s)
        except queue.Empty:
            raise CollectorSilent(f"the collector did not answer {method!r} within {timeout_s:g} s") from None
        except OSError:
            reply = None
        finally:
            self._waiting.pop(call_id, None)
        if reply is None:
            raise CollectorAway(f"the connection to the collector was lost while it was asked for {method!r}")
        return reply

    def close(self) -> None:
        self.broken = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The peer has already gone.

    def _receive(self) -> None:
        decoder = Decoder()
        try:
            while data := self._socket.recv(RECEIVE_BYTES):
                for frame in decoder.feed(data):
                    waiting = self._waiting.get(frame.header.get("call_id", 0))
                    if waiting is not None:
                        waiting.put(frame)
        except (OSError, VramscopeError):
            pass  # Told to every caller below, as a lost connection.
        self.broken = True
        self._socket.close()
        for waiting in list(self._waiting.values()):
            waiting.put(None)
