"""The opening of one snapshot file in a thread of its own: how far it is, what came of it, and its end on request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from vramscope.errors import VramscopeError, with_place
from vramscope.snapshot.opening import OpeningCancelled, Progress
from vramscope.trace.columns import TracedSnapshot

log = logging.getLogger("vramscope.dashboard")

WAITING, OPENING, OPEN, FAILED, CANCELLED, CLOSED = "waiting", "opening", "open", "failed", "cancelled", "closed"
RUNNING = (WAITING, OPENING)
WAIT_FOR_TURN_S = 0.1

# Opens the file: (progress, cancelled) -> snapshot. Raises VramscopeError with one line.
Open = Callable[[Callable[[Progress], None], Callable[[], bool]], TracedSnapshot]


class OpeningState(NamedTuple):
    """How an opening stands; ``error`` is the line of one that failed."""

    state: str
    progress: Progress | None = None
    error: str | None = None


class Opening:
    """Runs ``open_file`` once, when ``turns`` lets it, and hands the snapshot to ``opened``.

    ``is_again`` says that the file was open before, and had to make room for another.
    """

    def __init__(
        self,
        open_file: Open,
        opened: Callable[[TracedSnapshot], None],
        turns: threading.Semaphore,
        *,
        is_again: bool = False,
    ) -> None:
        self.is_again = is_again
        self._open_file, self._opened, self._turns = open_file, opened, turns
        self._cancelled, self._done = threading.Event(), threading.Event()
        self._state = OpeningState(WAITING)
        threading.Thread(target=self._run, name="vramscope-opening", daemon=True).start()

    @property
    def state(self) -> OpeningState:
        return self._state

    def cancel(self) -> None:
        """Ask it to end; it does so within a second."""
        self._cancelled.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, however it did."""
        self._done.wait(timeout_s)

    def _run(self) -> None:
        try:
            self._state = self._outcome()
        except VramscopeError as error:
            self._state = OpeningState(FAILED, error=str(error))
        except Exception as error:  # noqa: BLE001 - the top of the thread
            log.error("vramscope: opening a snapshot failed: %s", with_place(error))
            self._state = OpeningState(
                FAILED, error="this file could not be opened; the terminal of vramscope says why"
            )
        finally:
            self._done.set()

    def _outcome(self) -> OpeningState:
        while not self._turns.acquire(timeout=WAIT_FOR_TURN_S):
            if self._cancelled.is_set():
                return OpeningState(CANCELLED)
        try:
            self._state = OpeningState(OPENING)
            self._opened(self._open_file(self._report, self._cancelled.is_set))
        except OpeningCancelled:
            return OpeningState(CANCELLED)
        finally:
            self._turns.release()
        return OpeningState(OPEN)

    def _report(self, progress: Progress) -> None:
        self._state = OpeningState(OPENING, progress)
