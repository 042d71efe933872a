"""Where the socket, the store and the captures lie, and whether a folder is safe to use. Standard library only."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from vramscope.errors import BadInputError

# sockaddr_un.sun_path holds 108 bytes on Linux (104 on macOS), the closing zero included.
MAX_SOCKET_PATH_BYTES = 103


def runtime_folder(environ: os._Environ[str] | dict[str, str] = os.environ) -> Path:
    """Return the folder of the socket: $VRAMSCOPE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/vramscope, else one per uid."""
    if environ.get("VRAMSCOPE_RUNTIME_DIR"):
        return Path(environ["VRAMSCOPE_RUNTIME_DIR"])
    if environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["XDG_RUNTIME_DIR"]) / "vramscope"
    return Path(tempfile.gettempdir()) / f"vramscope-{os.getuid()}"


def state_folder(environ: os._Environ[str] | dict[str, str] = os.environ) -> Path:
    """Return the folder of what is kept: $VRAMSCOPE_STATE_DIR, else $XDG_STATE_HOME/vramscope, else under ~/.local/state."""
    if environ.get("VRAMSCOPE_STATE_DIR"):
        return Path(environ["VRAMSCOPE_STATE_DIR"])
    if environ.get("XDG_STATE_HOME"):
        return Path(environ["XDG_STATE_HOME"]) / "vramscope"
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # a container's uid without a home
        return Path(tempfile.gettempdir()) / f"vramscope-{os.getuid()}-state"
    return home / ".local" / "state" / "vramscope"


def socket_path(folder: Path) -> Path:
    """Return ``folder``/collector.sock. Raises BadInputError where the kernel could not bind so long a path."""
    path = folder / "collector.sock"
    check_socket_path(path)
    return path


def check_socket_path(path: Path) -> None:
    """Raise BadInputError where ``path`` is too long for a socket."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise BadInputError(
            f"the socket path {path} has {length} bytes and the system allows {MAX_SOCKET_PATH_BYTES}; "
            "set VRAMSCOPE_RUNTIME_DIR to a shorter folder"
        )


def make_private_folder(folder: Path, *, variable: str = "VRAMSCOPE_RUNTIME_DIR") -> None:
    """Create ``folder`` with mode 0700, or check that it already is one of ours. Raises BadInputError if it is not.

    ``variable`` is the environment variable that the error's line tells the user to set to another folder.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        pass  # It is no folder, or a link to none; the check says so.
    except OSError as error:
        raise BadInputError(f"cannot create {folder}: {error.strerror}; set {variable} to a folder of yours") from None
    check_private_folder(folder, variable=variable)


def check_private_folder(folder: Path, *, variable: str = "VRAMSCOPE_RUNTIME_DIR") -> None:
    """Raise BadInputError unless ``folder`` is a real directory of this uid that nobody else may enter."""
    try:
        found = os.lstat(folder)
    except OSError as error:
        raise BadInputError(f"cannot read {folder}: {error.strerror}; is the collector running?") from None
    if stat.S_ISLNK(found.st_mode):
        raise BadInputError(f"{folder} is a symbolic link; set {variable} to the folder that it points to")
    if not stat.S_ISDIR(found.st_mode):
        raise BadInputError(f"{folder} is not a folder; remove it or set {variable} to another")
    if found.st_uid != os.getuid():
        raise BadInputError(f"{folder} belongs to uid {found.st_uid}, not to you; set {variable} to a folder of yours")
    if found.st_mode & 0o077:
        raise BadInputError(
            f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):04o}); run: chmod 700 {folder}"
        )
