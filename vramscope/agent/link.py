"""Keeps the agent connected: dials the collector, says hello, takes its welcome or refusal, and backs off quietly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramscope.agent.connection import Connection, dial
from vramscope.agent.wire import Frame
from vramscope.errors import BadInputError, WireError

# A collector that was restarted is found again within three seconds; a try costs some 50 µs.
FIRST_WAIT_US = 500_000
LONGEST_WAIT_US = 2_500_000

logger = logging.getLogger("vramscope")


class Link:
    """The agent's one connection, or none. Belongs to the agent's thread, but for ``send`` and ``welcomed``.

    ``hello`` makes the hello frame and ``on_welcome`` gets the welcome's header. A problem is logged once, in one line;
    a missing collector is no problem. After a refusal that is not marked ``temporary`` (and without a ``path``), ``given_up`` is
    true and no more tries are made.
    """

    def __init__(
        self, path: Path | None, hello: Callable[[], bytes], on_welcome: Callable[[dict[str, Any]], None]
    ) -> None:
        self._path = path
        self._hello = hello
        self._on_welcome = on_welcome
        self._last_problem = ""
        self._wait_us = FIRST_WAIT_US
        self._next_try_us = 0
        self._dropped_before = 0
        self.connection: Connection | None = None
        self.welcomed = False
        self.given_up = path is None

    @property
    def dropped_frames(self) -> int:
        """Frames dropped in this process's life because the collector did not read."""
        return self._dropped_before + (self.connection.dropped_frames if self.connection else 0)

    def send(self, frame: bytes) -> None:
        """Queue a frame where the collector has welcomed us, else forget it. May be called from any thread."""
        connection = self.connection
        if connection is not None and self.welcomed:
            connection.send(frame)

    def wait_us(self, now_us: int) -> int:
        """Return how long there is nothing to do for an unconnected link."""
        return max(0, self._next_try_us - now_us)

    def connect_if_due(self, now_us: int) -> None:
        """Try to connect where there is no connection and the wait is over; the next try comes later each time."""
        if self.connection is not None or self._path is None or self.given_up or now_us < self._next_try_us:
            return
        self._next_try_us = now_us + self._wait_us
        self._wait_us = min(2 * self._wait_us, LONGEST_WAIT_US)
        try:
            self.connection = Connection(dial(self._path))
        except BadInputError as problem:
            self._say(str(problem))
        except OSError:
            return
        else:
            self.connection.send(self._hello())

    def flush(self, now_us: int) -> None:
        """Send what is queued, as far as the socket takes it. A lost connection is tried again soon."""
        try:
            if self.connection is not None:
                self.connection.flush()
        except OSError:
            self._lose(now_us)

    def receive(self, now_us: int) -> list[Frame]:
        """Return the requests that have arrived. A lost connection is tried again soon."""
        requests: list[Frame] = []
        try:
            for frame in self.connection.receive() if self.connection is not None else ():
                if frame.kind == "request":
                    requests.append(frame)
                else:
                    self._settle(frame)
        except WireError as problem:
            self._say(str(problem))
            self._lose(now_us)
        except OSError:
            self._lose(now_us)
        return requests

    def close(self) -> None:
        """Close the connection, if there is one. Also for a forked child, which must not speak on its parent's."""
        self.welcomed = False
        if self.connection is not None:
            self.connection.close()

    def _settle(self, frame: Frame) -> None:
        if frame.kind == "welcome":
            self._wait_us = FIRST_WAIT_US
            self._on_welcome(frame.header)
            self.welcomed = True
        elif frame.kind == "refused":
            self.given_up = frame.header.get("temporary") is not True
            self._say(f"the collector refused this job: {str(frame.header.get('message'))[:300]}")
            raise ConnectionRefusedError

    def _lose(self, now_us: int) -> None:
        self._dropped_before = self.dropped_frames
        self.close()
        self.connection = None
        self._next_try_us = now_us + self._wait_us

    def _say(self, problem: str) -> None:
        if problem != self._last_problem:
            self._last_problem = problem
            logger.warning("vramscope: %s", problem)
