"""Makes one collector the only one of its folder: the lock, and the socket that a dead predecessor may have left."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from vramscope.agent.paths import make_private_folder, socket_path
from vramscope.errors import VramscopeError

BACKLOG = 128


def take_lock(folder: Path) -> int:
    """Return the descriptor of the locked file, to be held for life. Raises VramscopeError where another collector runs.

    The kernel frees the lock however the process ends, so that a dead predecessor never stands in the way.
    """
    make_private_folder(folder)
    path = folder / "collector.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise VramscopeError(
            f"cannot open {path}: {error.strerror}; set VRAMSCOPE_RUNTIME_DIR to a folder of yours"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise VramscopeError(f"a collector already runs for {folder} (pid {pid}); stop it with: kill {pid}") from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def listen(folder: Path) -> socket.socket:
    """Return the listening socket (mode 0600), taking over the path. Only for who holds the lock. Raises VramscopeError."""
    path = socket_path(folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise VramscopeError(
            f"cannot listen on {path}: {error.strerror}; set VRAMSCOPE_RUNTIME_DIR to another folder"
        ) from None
    return listener
