"""What reading one file may cost: a hostile or a broken file ends at these limits and not with the machine."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of one opening. ``memory_bytes`` None means what a file of its size can need, and no more than the machine has."""

    file_bytes: int = 16 * GIB
    unpacked_bytes: int = 16 * GIB
    memory_bytes: int | None = None
    seconds: float | None = None

    def memory_for(self, file_bytes: int, packed: bool) -> int:
        """Return the address space for a file: measured, 7 times a pickle; JSON shares nothing and needs more."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(GIB + file_bytes * (300 if packed else 20), machine)

    def seconds_for(self, file_bytes: int) -> float:
        """Return the time for a file: a slow machine reads 5 MB of pickle a second."""
        return self.seconds if self.seconds is not None else 30 + file_bytes / 5e6


DEFAULT_LIMITS = Limits()


def limit_this_process(memory_bytes: int, seconds: float, written_bytes: int) -> None:
    """Let the kernel end this process beyond the limits; a core file is never written."""
    for what, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, int(seconds) + 1),
        (resource.RLIMIT_FSIZE, written_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (least, least))
