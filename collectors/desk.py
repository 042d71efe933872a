"""Every connection's first words and what follows from its role: ``handle(frame) → instructions``. Pure, synchronous."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.announce import check_protocol, text
from collectors.calls import Calls, Close, Instruction, Send
from collectors.jobs import Jobs
from collectors.settings import CollectorSettings
from vramscope.agent.wire import PROTOCOL_VERSION, Frame, encode
from vramscope.errors import VramscopeError, WireError

HELLO_WAIT_US = 5_000_000


@dataclass
class Guest:
    """A connection. ``role`` is None until its hello, "agent" or "viewer" after."""

    peer_pid: int
    since_us: int
    role: str | None = None


class Desk:
    """Where connections are numbered and told apart; what concerns jobs goes to Jobs, what viewers ask to Calls."""

    def __init__(self, settings: CollectorSettings, version: str, jobs: Jobs, calls: Calls) -> None:
        self._jobs = jobs
        self._calls = calls
        self._guests: dict[int, Guest] = {}
        self._welcome = encode(
            {
                "kind": "welcome",
                "protocol": PROTOCOL_VERSION,
                "collector_version": version,
                "counters_hz": settings.counters_hz,
                "map_interval_us": settings.map_interval_us,
            }
        )

    def opened(self, connection: int, peer_pid: int, now_us: int) -> None:
        self._guests[connection] = Guest(peer_pid, now_us)

    def handle(self, connection: int, frame: Frame, now_us: int) -> list[Instruction]:
        """Take one frame. A peer that breaks the protocol is told why and closed; the others go on."""
        guest = self._guests[connection]
        try:
            if guest.role is None:
                return self._hello(connection, guest, frame, now_us)
            if guest.role == "viewer":
                return self._calls.handle(connection, frame, now_us) if frame.kind == "call" else []
            if frame.kind == "reply":
                return self._calls.reply_arrived(connection, frame, now_us)
            key = self._jobs.handle(connection, frame, now_us)
            return [] if key is None else self._calls.map_arrived(key, frame)
        except VramscopeError as error:
            return self.refuse(connection, str(error))

    def refuse(self, connection: int, reason: str) -> list[Instruction]:
        """Tell a peer in one line why it is closed."""
        refused = encode({"kind": "refused", "message": reason})
        pid = self._guests[connection].peer_pid
        return [Send(connection, refused), Close(connection, f"refused the connection of process {pid}: {reason}")]

    def closed(self, connection: int, now_us: int) -> list[Instruction]:
        """A connection is gone, whoever closed it."""
        guest = self._guests.pop(connection)
        if guest.role == "agent":
            self._jobs.disconnected(connection, now_us)
        return self._calls.closed(connection)

    def tick(self, now_us: int) -> list[Instruction]:
        """Do what time alone brings about."""
        found = self._calls.tick(now_us)
        for connection, guest in list(self._guests.items()):
            if guest.role is None and now_us - guest.since_us >= HELLO_WAIT_US:
                found += self.refuse(connection, f"no hello within {HELLO_WAIT_US // 1_000_000} s")
        self._jobs.tick(now_us)
        return found

    def _hello(self, connection: int, guest: Guest, frame: Frame, now_us: int) -> list[Instruction]:
        if frame.kind != "hello":
            raise WireError(f"the first message was {text(frame.kind)[:40]!r} and must be a hello")
        check_protocol(frame.header)
        role = frame.header.get("role")
        if role == "agent":
            self._jobs.hello(connection, frame, guest.peer_pid, now_us)
        elif role != "viewer":
            raise WireError(f"a hello with the role {text(role)[:40]!r}; this collector knows agents and viewers")
        guest.role = role
        return [Send(connection, self._welcome)]
