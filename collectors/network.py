"""The collector's sockets: accepts, reads and writes without ever waiting for one peer, and carries out what the Desk says."""

from __future__ import annotations

import contextlib
import itertools
import logging
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator

from collectors.calls import Close, Instruction
from collectors.connection import Connection
from collectors.desk import Desk
from collectors.peer import check_peer
from vramscope.errors import VramscopeError, WireError

REFUSAL_SHOWN_US = 300_000_000
REFUSALS_SHOWN = 5
# A listener that cannot accept is left alone for so long: it would be ready again at once, for ever.
ACCEPT_PAUSE_US = 500_000

log = logging.getLogger("vramscope.collector")


def now_us() -> int:
    """Return the Unix time in µs."""
    return time.time_ns() // 1000


class Network:
    """All connections of one collector, by number."""

    def __init__(self, listener: socket.socket, desk: Desk) -> None:
        self._listener = listener
        self._desk = desk
        self._numbers = itertools.count(1)
        self._connections: dict[int, Connection] = {}
        # The lines told last, with the newest moment of each: a peer that tries for ever must not fill the disk.
        self._told: dict[str, int] = {}
        self._accepting = False
        self._accept_from_us = 0
        self._selector = selectors.DefaultSelector()

    @contextlib.contextmanager
    def woken_by_signals(self) -> Iterator[None]:
        """Let a signal end the waiting in ``serve`` at once."""
        read, write = socket.socketpair()
        read.setblocking(False)
        write.setblocking(False)
        before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        self._selector.register(read, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._selector.unregister(read)
            read.close()
            write.close()

    def serve(self, wait_s: float) -> None:
        """Do what sockets are ready for within ``wait_s``."""
        if not self._accepting and now_us() >= self._accept_from_us:
            self._selector.register(self._listener, selectors.EVENT_READ, 0)
            self._accepting = True
        for key, events in self._selector.select(wait_s):
            if key.data == 0:
                self._accept()
            elif key.data in self._connections:
                self._ready(key.data, events)

    def tick(self) -> None:
        """Do what time alone brings about."""
        self._carry_out(self._desk.tick(now_us()))

    def refusals(self, moment_us: int) -> list[str]:
        """Return the lines about peers that were refused in the last minutes."""
        return [line for line, told_us in self._told.items() if moment_us - told_us < REFUSAL_SHOWN_US]

    def close(self) -> None:
        for number in list(self._connections):
            self._drop(number)
        self._listener.close()
        self._selector.close()

    def listen_on(self, listener: socket.socket) -> None:
        """Accept from another listener in place of the one so far; connections stay."""
        self._stop_accepting()
        self._listener.close()
        self._listener = listener

    def _stop_accepting(self) -> None:
        if self._accepting:
            self._selector.unregister(self._listener)
            self._accepting = False

    def _accept(self) -> None:
        try:
            accepted, _address = self._listener.accept()
        except OSError as error:
            self._stop_accepting()
            self._accept_from_us = now_us() + ACCEPT_PAUSE_US
            self._tell(f"cannot accept a connection: {error.strerror}; jobs and pages that come now must wait")
            return
        try:
            peer_pid = check_peer(accepted)
        except VramscopeError as error:
            self._tell(f"refused a connection: {error}")
            accepted.close()
            return
        number = next(self._numbers)
        self._connections[number] = Connection(accepted)
        self._selector.register(accepted, selectors.EVENT_READ, number)
        self._desk.opened(number, peer_pid, now_us())

    def _ready(self, number: int, events: int) -> None:
        connection = self._connections[number]
        if events & selectors.EVENT_WRITE:
            self._carry_out(self._send(number))
        if events & selectors.EVENT_READ and number in self._connections:
            self._receive(number, connection)

    def _receive(self, number: int, connection: Connection) -> None:
        frames = connection.receive()
        if frames is None:
            if connection.torn_bytes:
                self._tell("a connection ended in the middle of a message")
            self._carry_out(self._drop(number))
            return
        try:
            for frame in frames:
                self._carry_out(self._desk.handle(number, frame, now_us()))
                if number not in self._connections:
                    return
        except WireError as error:
            self._carry_out(self._desk.refuse(number, str(error)))

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        waiting = deque(instructions)
        while waiting:
            found = waiting.popleft()
            connection = self._connections.get(found.connection)
            if connection is None:
                continue
            if isinstance(found, Close):
                self._tell(found.reason)
                waiting += self._drop(found.connection)
            elif connection.queue(found.data):
                waiting += self._send(found.connection)
            else:
                self._tell("a peer was sent more than it reads; its connection was closed")
                waiting += self._drop(found.connection)

    def _send(self, number: int) -> list[Instruction]:
        connection = self._connections[number]
        if not connection.send():
            return self._drop(number)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.sending else 0)
        self._selector.modify(connection.socket, events, number)
        return []

    def _drop(self, number: int) -> list[Instruction]:
        """Close a connection; returns what follows from that for others."""
        connection = self._connections.pop(number)
        self._selector.unregister(connection.socket)
        connection.close()
        return self._desk.closed(number, now_us())

    def _tell(self, line: str) -> None:
        """Show a line on the page for a while, and log it unless it is one of those already told."""
        if line not in self._told:
            log.warning("%s", line)
        newest = sorted(self._told, key=self._told.__getitem__)[-REFUSALS_SHOWN + 1 :]
        self._told = {kept: self._told[kept] for kept in newest} | {line: now_us()}
