"""Who is at the other end, and whether a process lives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from collectors.peer import check_peer, process_start
from vramscope.errors import VramscopeError


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    yield one
    one.close()
    other.close()


def test_a_peer_of_this_user_is_known_by_its_pid(connection: socket.socket) -> None:
    assert check_peer(connection) == os.getpid()


def test_a_peer_of_another_user_is_refused(connection: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)

    with pytest.raises(VramscopeError, match=f"has uid {uid} and this process {uid + 1}"):
        check_peer(connection)


def test_a_process_has_one_start_while_it_lives_and_none_after() -> None:
    # GIVEN a process
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    start = process_start(child.pid)

    # THEN its start is told, and stays
    assert start is not None
    assert process_start(child.pid) == start

    # WHEN it was killed and not yet waited for THEN it no longer lives
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_start(child.pid) is None
    child.wait()
    assert process_start(child.pid) is None
