"""What a scenario is given: its limits, its pace, and its ways to be seen and to speak."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# One pause of this length for so many new storages: about half of one core stays free, the memory is seen to rise and
# fall within a step, and the agent's thread gets its turn.
STORAGES_PER_PAUSE = 32
PAUSE_S = 0.015


class Stopped(Exception):
    """Raised in the training thread, at its next storage or wait, once the demo was asked to stop."""


class Pace:
    """Slows the training down to what a small machine bears, and lets a signal end it. For one thread and its signals."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._storages = 0
        self._stopped = False

    def stop(self) -> None:
        """Ask the training to end; safe in a signal handler."""
        self._stopped = True

    def storage(self) -> None:
        """Count one new storage, and pause where it is time to. Raises Stopped."""
        self._check()
        self._storages += 1
        if self._storages % STORAGES_PER_PAUSE == 0:
            self._sleep(PAUSE_S)

    def wait(self, seconds: float) -> None:
        """Sleep for ``seconds``. Raises Stopped within a tenth of a second after stop()."""
        for _ in range(round(seconds * 10)):
            self._check()
            self._sleep(0.1)

    def _check(self) -> None:
        if self._stopped:
            raise Stopped


@dataclass(frozen=True)
class Job:
    """``attach(model, optimizer)`` and ``mark(label)`` are vramscope's; ``say`` prints a line.

    ``capacity_bytes`` is the memory of the job's GPU. ``steps`` is None for endless; ``small`` asks for a tiny model.
    """

    pace: Pace
    attach: Callable[[Any, Any], None]
    mark: Callable[[str], None]
    say: Callable[[str], None]
    capacity_bytes: int
    steps: int | None = None
    small: bool = False

    def step_numbers(self) -> Iterator[int]:
        """Yield 1, 2, … up to ``steps``."""
        return itertools.count(1) if self.steps is None else iter(range(1, self.steps + 1))
