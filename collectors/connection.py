"""One accepted socket with its bounded buffers: bytes in become frames, frames out wait until the peer reads. IO only."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from vramscope.agent.wire import Decoder, Frame

RECEIVE_BYTES = 1 << 18
# A peer that leaves this much unread has stopped reading.
OUTGOING_CAP_BYTES = 64 << 20


class Connection:
    """An agent's or a viewer's socket; its peer's uid was checked before."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._decoder = Decoder()
        self._outgoing = bytearray()

    @property
    def sending(self) -> bool:
        return bool(self._outgoing)

    @property
    def torn_bytes(self) -> int:
        """Bytes of a message that has not arrived in full."""
        return self._decoder.pending_bytes

    def receive(self) -> Iterator[Frame] | None:
        """Return the frames that one read completes, or None where the peer has gone. Iterating may raise WireError."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return iter(())
        except OSError:
            return None
        return iter(self._decoder.feed(data)) if data else None

    def queue(self, data: bytes) -> bool:
        """Queue whole frames; False where the peer has left too much unread, and the connection must close."""
        if len(self._outgoing) + len(data) > OUTGOING_CAP_BYTES:
            return False
        self._outgoing += data
        return True

    def send(self) -> bool:
        """Send what the peer takes now; False where it has gone."""
        try:
            while self._outgoing:
                with memoryview(self._outgoing) as waiting:
                    sent = self.socket.send(waiting[:RECEIVE_BYTES])
                del self._outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()
