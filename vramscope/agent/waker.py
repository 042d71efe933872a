"""Lets the agent's thread sleep on its socket, and any thread wake it."""

from __future__ import annotations

import select
import socket

from vramscope.agent.connection import Connection


class Waker:
    """A pair of sockets that ends the sleep. ``wake`` may be called from any thread, also after ``close``."""

    def __init__(self) -> None:
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)

    def wake(self) -> None:
        """End the sleep, or the next one."""
        try:
            self._waking.send(b"\0")
        except OSError:  # more wake-ups wait already than the buffer holds, or the agent has ended
            return

    def sleep(self, connection: Connection | None, longest_us: float) -> None:
        """Return after ``longest_us``, at a wake-up, when ``connection`` has data, or when it takes what is queued."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if connection is not None:
            poll.register(connection, select.POLLIN | (select.POLLOUT if connection.queued_bytes else 0))
        poll.poll(longest_us / 1000)
        try:
            self._woken.recv(4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close this process's ends."""
        self._waking.close()
        self._woken.close()
