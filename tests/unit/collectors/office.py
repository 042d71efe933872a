"""A collector's state machine without sockets: connections are numbers, and what it would send is kept for the test to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collectors.calls import Calls, Close, Instruction, Send
from collectors.desk import Desk
from collectors.jobs import Jobs
from collectors.settings import CollectorSettings
from tests.collector_peers import hello
from vramscope.agent.wire import PROTOCOL_VERSION, Decoder, Frame, encode
from vramscope.errors import VramscopeError

SECOND = 1_000_000
START_US = 1_790_000_000 * SECOND


class Office:
    """The Desk under test; ``processes`` are those that live (pid → start), ``files`` the snapshots that exist (path → bytes)."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.processes: dict[int, int] = {}
        self.files: dict[Path, int] = {}
        self.sent: dict[int, list[Frame]] = {}
        self.closed: dict[int, str] = {}
        self.jobs = Jobs(process_start=self.processes.get)
        self.calls = Calls(self.jobs, Path("/dumps"), status=lambda: {"version": "test"}, dump_bytes=self._dump_bytes)
        self.desk = Desk(CollectorSettings(Path("/r"), Path("/s")), "0.0", self.jobs, self.calls)

    def open(self, connection: int, *, pid: int = 1) -> None:
        self.processes.setdefault(pid, 7)
        self.desk.opened(connection, pid, self.now_us)

    def agent(self, connection: int, rank: int = 0, *, pid: int = 1, **fields: Any) -> str:
        """Connect an agent; returns its job's id."""
        self.open(connection, pid=pid)
        self.say(connection, hello(rank, pid=pid, **fields))
        assert self.sent[connection][-1].kind == "welcome", self.sent[connection][-1].header
        (job_id,) = [
            job.id for job in self.jobs.by_id.values() for r in job.ranks.values() if r.connection == connection
        ]
        return job_id

    def viewer(self, connection: int) -> None:
        self.open(connection)
        self.say(connection, {"kind": "hello", "role": "viewer", "protocol": PROTOCOL_VERSION})

    def call(self, connection: int, method: str, call_id: int = 1, **params: Any) -> None:
        self.say(connection, {"kind": "call", "call_id": call_id, "method": method, "params": params})

    def say(self, connection: int, message: dict[str, Any] | bytes) -> None:
        """Hand a message over as the network would, in one piece."""
        for frame in Decoder().feed(message if isinstance(message, bytes) else encode(message)):
            self._carry_out(self.desk.handle(connection, frame, self.now_us))

    def hang_up(self, connection: int) -> None:
        self._carry_out(self.desk.closed(connection, self.now_us))

    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)
        self._carry_out(self.desk.tick(self.now_us))

    def replies(self, connection: int) -> list[dict[str, Any]]:
        """Return the replies that a viewer got."""
        return [frame.header for frame in self.sent.get(connection, []) if frame.kind == "reply"]

    def requests(self, connection: int) -> list[dict[str, Any]]:
        """Return what an agent was asked."""
        return [frame.header for frame in self.sent.get(connection, []) if frame.kind == "request"]

    def _dump_bytes(self, path: Path) -> int:
        if path not in self.files:
            raise VramscopeError(f"the job said it wrote {path}, but it is not there")
        return self.files[path]

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for found in instructions:
            if isinstance(found, Send):
                self.sent.setdefault(found.connection, []).extend(Decoder().feed(found.data))
            elif isinstance(found, Close):
                self.closed[found.connection] = found.reason
