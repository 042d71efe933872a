"""Who is at the other end of a Unix socket, and whether a process still lives (Linux: SO_PEERCRED and /proc)."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from vramscope.errors import VramscopeError

_UCRED = struct.Struct("3i")


def check_peer(connection: socket.socket) -> int:
    """Return the peer's pid as this process sees it. Raises VramscopeError where the peer belongs to another uid."""
    pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if uid != os.getuid():
        raise VramscopeError(f"the peer on the socket has uid {uid} and this process {os.getuid()}; it is not trusted")
    return int(pid)


def process_start(pid: int) -> int | None:
    """Return when process ``pid`` started, in the kernel's clock ticks since boot, or None where it does not live.

    Together with the pid this tells a process from a later one that was given the same number. Raises OSError where it
    cannot be told now, because this process has no descriptor left, say.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    # Fields 3 (state) and 22 (starttime) of proc(5); a zombie no longer runs.
    return None if fields[0] in "ZX" else int(fields[19])
