"""Makes one collector the only one of its folders: the locks, and the socket that a dead predecessor may have left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from vramscope.agent.paths import make_private_folder, socket_path
from vramscope.errors import VramscopeError

BACKLOG = 128
LOCK_NAME = "collector.lock"


def take_lock(folder: Path) -> int:
    """Return the descriptor of the folder's locked file, to be held for life. Raises VramscopeError where another collector has it.

    The kernel frees the lock however the process ends, so that a dead predecessor never stands in the way.
    """
    path = folder / LOCK_NAME
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise VramscopeError(
            f"cannot open {path}: {error.strerror}; is {folder} a folder that you can write to?"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid, _, host = os.read(lock, 256).decode(errors="replace").strip().partition(" ")
        os.close(lock)
        raise VramscopeError(
            f"a collector already runs for {folder} (pid {pid} on {host}); stop it there with: kill {pid}"
        ) from None
    # The folder of the history may be shared by several machines. A full disk costs the name in the message, not the lock.
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()} {socket.gethostname()}\n".encode())
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


class Door:
    """The lock and the socket in the runtime folder, by which a collector is found.

    Cleaners of temporary folders remove both from under a collector that runs; then no new job would find it.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises VramscopeError where another collector has it."""
        self._folder = folder
        self._lock = take_lock(folder)
        self._socket: tuple[int, int] | None = None

    def open(self) -> socket.socket:
        """Return the listening socket, also where it was removed. Raises VramscopeError where there can be none (any more)."""
        make_private_folder(self._folder)
        if _identity(self._folder / LOCK_NAME) != _identity(self._lock):
            lock = take_lock(self._folder)
            os.close(self._lock)
            self._lock = lock
        listener = listen(self._folder)
        self._socket = _identity(socket_path(self._folder))
        return listener

    @property
    def is_there(self) -> bool:
        """Whether the socket is still the one that was opened."""
        return self._socket is not None and _identity(socket_path(self._folder)) == self._socket

    def close(self) -> None:
        """Remove the socket, unless it is another collector's by now, and free the lock."""
        if self.is_there:
            with contextlib.suppress(OSError):
                socket_path(self._folder).unlink()
        os.close(self._lock)


def _identity(file: Path | int) -> tuple[int, int] | None:
    """Return what tells a file from all others, or None where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
