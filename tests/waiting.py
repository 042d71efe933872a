"""Waits for what other processes and threads bring about. Standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# Generous, because the machine may be busy with other things.
DEADLINE_S = 60.0
_PAUSE_S = 0.02


def wait_for(find: Callable[[], Found | None], what: str, *, within_s: float = DEADLINE_S) -> Found:
    """Return the first true answer of ``find``; fails, naming ``what``, where there is none in time."""
    deadline_s = time.monotonic() + within_s
    while True:
        found = find()
        if found:
            return found
        assert time.monotonic() < deadline_s, f"waited {within_s:g} s for {what}"
        time.sleep(_PAUSE_S)
