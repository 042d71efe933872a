"""The agent's socket: whole frames or none, bounded, never blocking, and only to a collector of this user."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramscope.agent import connection as connection_module
from vramscope.agent.connection import Connection, dial
from vramscope.agent.wire import Decoder, Frame, encode
from vramscope.errors import BadInputError, WireError


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def read_all(theirs: socket.socket, decoder: Decoder) -> list[Frame]:
    found: list[Frame] = []
    while True:
        try:
            found += decoder.feed(theirs.recv(1 << 16))
        except BlockingIOError:
            return found


def test_a_peer_that_does_not_read_costs_frames_and_no_waiting(pair: tuple[socket.socket, socket.socket]) -> None:
    # GIVEN a collector that hangs
    ours, theirs = pair
    connection = Connection(ours, max_queued_bytes=1 << 20)
    frames = [encode({"kind": "map", "number": number}, {"filler": bytes(300_000)}) for number in range(20)]

    # WHEN
    accepted = []
    for frame in frames:
        accepted.append(connection.send(frame))
        connection.flush()

    # THEN what does not fit is dropped and counted, and memory is bounded
    assert not all(accepted)
    assert connection.dropped_frames == accepted.count(False)
    assert connection.queued_bytes <= 1 << 20

    # WHEN the collector reads again
    decoder, found = Decoder(), []
    while connection.queued_bytes or decoder.pending_bytes:
        connection.flush()
        found += read_all(theirs, decoder)

    # THEN the frames that were accepted arrive whole and in order
    expected = [number for number, was_accepted in enumerate(accepted) if was_accepted]
    assert [frame.header["number"] for frame in found] == expected
    assert decoder.pending_bytes == 0


def test_a_frame_over_the_bound_is_still_sent_where_nothing_waits(pair: tuple[socket.socket, socket.socket]) -> None:
    # GIVEN
    ours, theirs = pair
    connection = Connection(ours, max_queued_bytes=1000)
    large = encode({"kind": "map"}, {"filler": bytes(500_000)})

    # WHEN
    assert connection.send(large)
    assert not connection.send(large)
    decoder, found = Decoder(), []
    while connection.queued_bytes or not found:
        connection.flush()
        found += read_all(theirs, decoder)

    # THEN
    assert len(found) == 1
    assert found[0].payload == bytes(500_000)


def test_the_end_of_the_stream_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(OSError, match="closed"):
        list(Connection(ours).receive())


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        # Another version, and a payload no collector has reason to send.
        encode({"kind": "welcome"})[:4] + b"\x02" + encode({"kind": "welcome"})[5:],
        encode({"kind": "request"}, {"filler": bytes((1 << 20) + 1)})[:64],
    ],
)
def test_a_peer_that_breaks_the_protocol_is_refused(pair: tuple[socket.socket, socket.socket], data: bytes) -> None:
    ours, theirs = pair
    theirs.send(data)
    with pytest.raises(WireError):
        list(Connection(ours).receive())


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("s")
    found.chmod(0o700)
    return found


def test_a_collector_of_this_user_is_reached_without_blocking(folder: Path) -> None:
    with listen(folder / "s"), dial(folder / "s") as found:
        assert found.getblocking() is False


def test_no_collector_is_an_os_error_that_the_link_keeps_to_itself(folder: Path) -> None:
    for path in (folder / "absent.sock", folder / "absent" / "s"):
        with pytest.raises(OSError, match=r"No such file|no collector"):
            dial(path)


def test_a_folder_that_others_may_enter_is_refused(folder: Path) -> None:
    folder.chmod(0o755)
    with listen(folder / "s"), pytest.raises(BadInputError, match="chmod 700"):
        dial(folder / "s")


def test_another_users_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with listen(folder / "s"), pytest.raises(BadInputError, match=f"belongs to uid {uid}"):
        dial(folder / "s")


def test_another_users_process_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a folder that passes, and a process of another uid that listens in it
    monkeypatch.setattr(connection_module, "check_private_folder", lambda folder: None)
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)

    # THEN
    with listen(folder / "s"), pytest.raises(BadInputError, match="not trusted"):
        dial(folder / "s")
