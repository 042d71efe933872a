"""The collector as a real process: it starts alone, stops cleanly, survives its peers, and takes over from a dead one."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.announce import JobKey
from collectors.gateway import Gateway
from collectors.jobs import ENDED_UNSEEN, LOST
from collectors.settings import store_path
from tests.collector_peers import (
    CHECKOUT,
    CollectorProcess,
    ScriptedAgent,
    collecting,
    counters,
    hello,
    map_frame,
    now_us,
)
from tests.waiting import wait_for
from vramscope.agent.wire import MAGIC, MAX_PAYLOAD_BYTES, PREFIX, encode
from vramscope.records import JobInfo
from vramscope.units import MIB


class Place:
    """The folders of one collector, short enough for a socket, and a dashboard's view of them."""

    def __init__(self, folder: Path) -> None:
        self.runtime, self.state = folder / "r", folder / "s"
        self.gateway = Gateway(self.runtime, self.state)

    def the_job(self) -> JobInfo:
        """Return the only job."""
        (job,) = wait_for(self.gateway.jobs, "a job to be known")
        return job

    def stored_samples(self) -> int:
        """Return how many samples the history has of the only job."""
        jobs = self.gateway.jobs()
        found = jobs and self.gateway.timeline(jobs[0].id, 0, from_unix_us=None, to_unix_us=None, points=10_000)
        return len(found.time_unix_us) if found else 0


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="vs") as folder:
        found = Place(Path(folder))
        yield found
        found.gateway.close()


def test_it_says_where_it_collects_in_folders_that_are_the_users_alone(place: Place) -> None:
    # GIVEN a collector that starts where nothing is yet
    collector = CollectorProcess(place.runtime, place.state)

    # THEN its one line names the socket and the store
    assert collector.ready() == f"collecting on {place.runtime}/collector.sock, store {place.state}/history.sqlite\n"
    # AND nobody else may enter
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (place.runtime, place.state, place.state / "dumps")
    }
    assert modes == {"r": 0o700, "s": 0o700, "dumps": 0o700}
    assert stat.S_IMODE((place.runtime / "collector.sock").stat().st_mode) == 0o600
    collector.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_everything_written_and_the_socket_gone(place: Place, number: signal.Signals) -> None:
    # GIVEN a collector with a sample and a map that came just now
    with collecting(place.runtime, place.state) as collector, ScriptedAgent(place.runtime, hello()) as agent:
        agent.send(counters(now_us()))
        agent.send(map_frame(now_us(), at="step_end"))
        wait_for(lambda: place.gateway.jobs() and place.gateway.stats(place.the_job().id, 0), "the sample to arrive")

        # WHEN it is told to stop
        status = collector.stop(number)

        # THEN it ends well, and the history has both
        assert (status, collector.output()) == (0, "")
        assert not (place.runtime / "collector.sock").exists()
        assert place.stored_samples() == 1
        found = place.gateway.device_map(place.the_job().id, 0)
        assert found is not None
        assert found.boundary_address is not None
        with pytest.raises(EOFError):
            agent.receive()


def test_a_second_collector_ends_with_one_line_that_names_the_first(place: Place) -> None:
    with collecting(place.runtime, place.state) as first:
        second = CollectorProcess(place.runtime, place.state)

        assert second.process.wait(timeout=30) == 2
        line = second.output()
        second.close()

        assert line.count("\n") == 1
        assert (
            f"a collector already runs for {place.runtime} (pid {first.process.pid} on {socket.gethostname()})" in line
        )
        assert place.gateway.status().connected


def test_a_collector_elsewhere_does_not_write_the_same_history(place: Place) -> None:
    with collecting(place.runtime, place.state) as first:
        second = CollectorProcess(place.runtime.with_name("r2"), place.state)

        assert second.process.wait(timeout=30) == 2
        assert f"already runs for {place.state} (pid {first.process.pid} on" in second.output()
        second.close()


def test_it_takes_over_from_one_that_was_killed(place: Place) -> None:
    # GIVEN a collector that was killed without a word, and a job that goes on
    with collecting(place.runtime, place.state) as first, ScriptedAgent(place.runtime, hello()) as agent:
        agent.send(counters(now_us(), active_bytes=5 * MIB))
        wait_for(place.stored_samples, "the sample to be stored")
        first.stop(signal.SIGKILL)
    assert (place.runtime / "collector.sock").exists()

    # THEN the page still has what was written
    assert not place.gateway.status().connected
    job = place.the_job()
    stats = place.gateway.stats(job.id, 0)
    assert stats is not None
    assert stats.counters["active_bytes"] == 5 * MIB

    # WHEN another starts, and the job's agent comes back THEN it is the same job and the series goes on
    with collecting(place.runtime, place.state), ScriptedAgent(place.runtime, hello()) as agent:
        agent.send(counters(now_us()))
        wait_for(lambda: place.stored_samples() >= 2, "the series to go on")
        assert place.the_job().id == job.id
        assert place.the_job().ranks[0].ended_unix_us is None
    connection = sqlite3.connect(store_path(place.state))
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def announce_and_die(runtime: Path) -> None:
    """Be an agent in a child process that is killed in the middle of its job."""
    pid = os.fork()
    if pid == 0:
        agent = ScriptedAgent(runtime, hello(pid=os.getpid()))
        agent.send(counters(now_us()))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_job_that_was_killed_is_lost(place: Place) -> None:
    with collecting(place.runtime, place.state):
        announce_and_die(place.runtime)

        reason = wait_for(lambda: place.the_job().ranks[0].end_reason, "the end to be noticed")

        assert reason == LOST


def test_a_job_that_ended_while_no_collector_ran_is_marked_by_the_next(place: Place) -> None:
    with collecting(place.runtime, place.state) as first:
        announce_and_die(place.runtime)
        wait_for(place.stored_samples, "the sample to be stored")
        first.stop(signal.SIGKILL)

    with collecting(place.runtime, place.state):
        reason = wait_for(lambda: place.the_job().ranks[0].end_reason, "the end to be noticed")

        assert reason == ENDED_UNSEEN
        # AND what it had is still there to look at
        stats = place.gateway.stats(place.the_job().id, 0)
        assert stats is not None
        assert stats.counters["reserved_bytes"] == 300 * MIB


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak vramscope's protocol"),
        (PREFIX.pack(MAGIC, 9, 2, 0) + b"{}", "speaks protocol version 9 and this side 1"),
        (PREFIX.pack(MAGIC, 1, 10, MAX_PAYLOAD_BYTES + 1), "over the limit"),
        (PREFIX.pack(MAGIC, 1, 1 << 30, 0), "over the limit"),
        (PREFIX.pack(MAGIC, 1, 4, 0) + b"nope", "is not JSON"),
        (encode({"kind": "counters"}), "must be a hello"),
    ],
    ids=["http", "version", "payload", "header", "json", "no hello"],
)
def test_a_peer_that_speaks_garbage_is_told_and_the_others_go_on(place: Place, garbage: bytes, words: str) -> None:
    with collecting(place.runtime, place.state), ScriptedAgent(place.runtime, hello()) as good:
        # WHEN a peer says what no agent says
        with ScriptedAgent(place.runtime) as bad:
            bad.send(garbage)

            # THEN it gets one line, and is closed
            refused = bad.receive()
            assert refused.kind == "refused"
            assert words in refused.header["message"]
            with pytest.raises(EOFError):
                bad.receive()

        # AND the page says so, while the good one is heard
        assert any(words in line for line in place.gateway.status().messages)
        good.send(counters(now_us()))
        wait_for(lambda: place.gateway.stats(place.the_job().id, 0), "the good agent to be heard")


def test_a_frame_that_is_torn_is_told_and_forgotten(place: Place) -> None:
    with collecting(place.runtime, place.state):
        with ScriptedAgent(place.runtime, hello()) as agent:
            agent.send(map_frame(now_us())[:-7])

        wait_for(
            lambda: any("in the middle of a message" in line for line in place.gateway.status().messages),
            "the torn message to be told",
        )


def test_a_viewer_that_does_not_read_is_closed_and_the_others_go_on(place: Place) -> None:
    with collecting(place.runtime, place.state), ScriptedAgent(place.runtime, hello()) as agent:
        # GIVEN a job with a large map, and a viewer that asks for it and never reads
        agent.send(map_frame(now_us(), blocks=200_000))
        job_id = place.the_job().id
        wait_for(lambda: place.gateway.device_map(job_id, 0, max_age_s=1e6), "the map to arrive")
        params = {"job_id": job_id, "device": 0, "rank": 0, "max_age_us": 10**12}
        with ScriptedAgent(place.runtime, {"kind": "hello", "role": "viewer", "protocol": 1}) as slow:
            for call_id in range(40):
                slow.send(encode({"kind": "call", "call_id": call_id, "method": "map", "params": params}))

            # THEN its connection is closed with a line, and another viewer gets the map
            wait_for(
                lambda: any("sent more than it reads" in line for line in place.gateway.status().messages),
                "the slow viewer to be told",
            )
            found = place.gateway.device_map(job_id, 0, max_age_s=1e6)
            assert found is not None
            assert found.block_count == 200_000


def test_a_folder_that_is_open_to_others_is_refused(place: Place) -> None:
    place.runtime.mkdir(mode=0o755)
    place.runtime.chmod(0o755)

    collector = CollectorProcess(place.runtime, place.state)

    assert collector.process.wait(timeout=30) == 2
    assert f"run: chmod 700 {place.runtime}" in collector.output()
    collector.close()


def test_another_users_folder_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a folder of this user, and a process that takes itself for another user
    place.runtime.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    # THEN the dashboard does not connect, and says whose it is
    (line,) = place.gateway.status().messages
    assert "belongs to uid" in line


def test_a_peer_of_another_user_is_not_trusted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a collector whose uid, as the kernel tells it, is not this user's
    real = socket.socket.getsockopt

    def foreign(self: socket.socket, *arguments: int) -> int | bytes:
        if arguments[1] == socket.SO_PEERCRED:
            return struct.pack("3i", 1, 12345, 12345)
        return real(self, *arguments)

    with collecting(place.runtime, place.state):
        monkeypatch.setattr("socket.socket.getsockopt", foreign)

        (line,) = place.gateway.status().messages

        assert "uid 12345" in line
        assert not place.gateway.status().connected


def test_a_history_of_another_version_is_not_overwritten(place: Place) -> None:
    # GIVEN a state folder whose history a later vramscope wrote
    with collecting(place.runtime, place.state) as collector:
        collector.stop()
    connection = sqlite3.connect(store_path(place.state))
    connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    connection.commit()
    connection.close()

    # WHEN this one starts THEN it says what to do in one line
    collector = CollectorProcess(place.runtime, place.state)
    assert collector.process.wait(timeout=30) == 2
    line = collector.output()
    collector.close()
    assert "version 99" in line
    assert "move it away" in line
    assert line.count("\n") == 1
    # AND the page, which reads it by itself, says the same
    assert any("version 99" in line for line in place.gateway.status().messages)


def test_a_disk_that_is_full_stops_the_history_and_nothing_else(place: Place) -> None:
    # GIVEN a collector whose files may not grow any more
    with collecting(place.runtime, place.state) as collector, ScriptedAgent(place.runtime, hello()) as agent:
        pid = collector.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
        sent = 0

        def told() -> bool:
            nonlocal sent
            sent += 1
            agent.send(counters(now_us(), active_bytes=sent * MIB))
            return any("history is not kept" in line for line in place.gateway.status().messages)

        wait_for(told, "the page to be told")

        # THEN live figures go on
        agent.send(counters(now_us(), active_bytes=7777 * MIB))
        job_id = place.the_job().id

        def active() -> int | None:
            stats = place.gateway.stats(job_id, 0)
            return stats.counters["active_bytes"] if stats else None

        wait_for(lambda: active() == 7777 * MIB, "live figures")

        # AND when there is room again, the history does too
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

        def stored() -> int:
            agent.send(counters(now_us()))
            return place.stored_samples()

        wait_for(stored, "the history to be kept again")
        assert not any("history is not kept" in line for line in place.gateway.status().messages)


def test_a_collector_is_found_again_after_its_folder_was_removed(place: Place) -> None:
    # GIVEN a collector with a job
    with collecting(place.runtime, place.state) as collector, ScriptedAgent(place.runtime, hello()) as agent:
        # WHEN a cleaner of temporary files removes its folder
        shutil.rmtree(place.runtime)

        # THEN it makes it anew, for this user alone, and later jobs come to it
        wait_for((place.runtime / "collector.sock").exists, "the socket")
        assert stat.S_IMODE(place.runtime.stat().st_mode) == 0o700
        with ScriptedAgent(place.runtime, hello(run_id="run-2")):
            assert len(place.gateway.jobs()) == 2
        # AND the first is still connected
        agent.send(counters(now_us()))
        wait_for(lambda: place.gateway.stats(JobKey("gpt", "run-1", 1).job_id(1), 0), "its figures")

        # AND it is still the only one
        second = CollectorProcess(place.runtime, place.state)
        assert second.process.wait(timeout=30) == 2
        second.close()
        assert collector.stop() == 0
        assert collector.output().count("\n") == 1
        assert not (place.runtime / "collector.sock").exists()


def test_a_collector_that_was_replaced_leaves_the_others_socket(place: Place) -> None:
    # GIVEN a collector whose folder was removed, and another that took its place at once
    with collecting(place.runtime, place.state) as first:
        first.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(place.runtime)
        with collecting(place.runtime, place.state.with_name("s2")) as second:
            first.process.send_signal(signal.SIGCONT)

            # THEN the first says so, and ends without a trace
            wait_for(lambda: select.select([first.process.stderr], [], [], 0)[0], "its line")
            with ScriptedAgent(place.runtime, hello()):
                assert first.stop() == 0
                assert f"already runs for {place.runtime} (pid {second.process.pid}" in first.output()
                assert (place.runtime / "collector.sock").exists()


def test_a_history_that_was_removed_is_begun_anew(place: Place) -> None:
    # GIVEN a collector with a job in its history
    with collecting(place.runtime, place.state), ScriptedAgent(place.runtime, hello()) as agent:
        agent.send(counters(now_us()))
        wait_for(place.stored_samples, "the sample to be stored")

        # WHEN the history is removed
        for file in place.state.glob("history.sqlite*"):
            file.unlink()

        # THEN there is a new one, which knows the job
        def stored() -> int:
            agent.send(counters(now_us()))
            return place.stored_samples()

        wait_for(stored, "the history to be kept again")


def test_without_a_free_descriptor_it_waits_and_calls_no_one_dead(place: Place) -> None:
    # GIVEN a collector at its limit of files, with a job that lives
    with collecting(place.runtime, place.state) as collector, ScriptedAgent(place.runtime, hello()) as agent:
        pid = collector.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert place.the_job()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))

        # WHEN another comes, and the job's agent goes
        with ScriptedAgent(place.runtime) as late:
            wait_for(lambda: any("cannot accept" in line for line in place.gateway.status().messages), "the line")
            used_s = cpu_s(pid)
            began_s = time.monotonic()
            wait_for(lambda: time.monotonic() - began_s > 2, "two seconds")
            assert cpu_s(pid) - used_s < 1, "it asks without a pause"

            # THEN the late one is taken when there is room again
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            late.send(hello(run_id="run-2"))
            assert late.receive().kind == "welcome"
        agent.send(counters(now_us()))


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_output_that_takes_nothing_does_not_end_it(place: Place) -> None:
    # GIVEN a collector whose lines go to a disk that is full
    command = [sys.executable, "-m", "vramscope", "collect", "--no-nvml"]
    command += ["--runtime-dir", str(place.runtime), "--state-dir", str(place.state)]
    with open("/dev/full", "w") as full:
        collector = subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=full, stderr=full)
    try:
        # THEN it collects
        wait_for(lambda: place.gateway.status().connected, "the collector")
        # AND goes on after a line of its log that it could not write
        with ScriptedAgent(place.runtime) as stranger:
            stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.receive().kind == "refused"
        assert place.gateway.status().connected
    finally:
        collector.terminate()
        assert collector.wait(30) == 0


def test_a_collector_that_hangs_holds_no_one_for_long(place: Place) -> None:
    # GIVEN a collector that is stopped like a debugger would
    with collecting(place.runtime, place.state) as collector:
        assert place.gateway.status().connected
        collector.process.send_signal(signal.SIGSTOP)

        # THEN a call ends with a line
        (line,) = place.gateway.status().messages
        assert "did not answer" in line

        # AND the next ones do not wait for it again
        (line,) = place.gateway.status().messages
        assert "is asked again every" in line

        # AND when it goes on, so does the page
        collector.process.send_signal(signal.SIGCONT)
        wait_for(lambda: place.gateway.status().connected, "the collector to answer again")
