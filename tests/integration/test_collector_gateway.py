"""The dashboard's gateway over a real collector and a scripted job: live where it can be, from the history where it cannot."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.gateway import Gateway
from collectors.launch import ensure_running
from collectors.settings import CollectorSettings, log_path
from tests.collector_peers import (
    SEGMENT_ADDRESS,
    CollectorProcess,
    ScriptedAgent,
    collecting,
    counters,
    hello,
    map_frame,
    now_us,
)
from tests.waiting import wait_for
from vramscope.columns import DeviceMap
from vramscope.errors import VramscopeError
from vramscope.units import MIB


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vs") as name:
        yield Path(name)


@pytest.fixture
def collector(folder: Path) -> Iterator[CollectorProcess]:
    with collecting(folder / "r", folder / "s") as found:
        yield found


@pytest.fixture
def gateway(folder: Path) -> Iterator[Gateway]:
    found = Gateway(folder / "r", folder / "s")
    yield found
    found.close()


@pytest.fixture
def agent(folder: Path, collector: CollectorProcess) -> Iterator[ScriptedAgent]:
    with ScriptedAgent(folder / "r", hello()) as found:
        yield found


def job_id(gateway: Gateway) -> str:
    return wait_for(gateway.jobs, "the job to be known")[0].id


def test_without_a_collector_and_a_history_everything_is_empty_and_nothing_raises(
    folder: Path, gateway: Gateway
) -> None:
    # GIVEN folders that are not even there
    status = gateway.status()

    # THEN one line says so
    assert not status.connected
    assert len(status.messages) == 1
    assert (gateway.jobs(), gateway.readings(), gateway.dumps()) == ([], [], [])
    assert gateway.stats("x", 0) is None
    assert gateway.device_map("x", 0) is None
    assert gateway.timeline("x", 0, from_unix_us=None, to_unix_us=None, points=100) is None
    assert gateway.stack("x", 0, None, 1).reason
    with pytest.raises(VramscopeError):
        gateway.dump("x")
    assert list(folder.iterdir()) == []


def test_a_fresh_map_comes_from_the_job(gateway: Gateway, agent: ScriptedAgent) -> None:
    # GIVEN a viewer that waits for a map
    agent.send(map_frame(now_us(), blocks=4, at="step_end"))
    job = job_id(gateway)
    found: list[DeviceMap | None] = []
    waiting = threading.Thread(target=lambda: found.append(gateway.device_map(job, 0, max_age_s=0)))
    waiting.start()

    # WHEN the job answers
    request = agent.receive()
    taken_us = now_us()
    agent.send(map_frame(taken_us, blocks=6, request_id=request.header["request_id"]))
    waiting.join(timeout=30)

    # THEN that is the map, with the boundary of the last step
    (fresh,) = found
    assert fresh is not None
    assert (fresh.block_count, fresh.time_unix_us, fresh.version) == (6, taken_us, taken_us)
    assert fresh.boundary_address is not None
    assert fresh.boundary_address.tolist() == [SEGMENT_ADDRESS, SEGMENT_ADDRESS + 2 * MIB]


def test_a_job_that_is_busy_gives_its_newest_map(gateway: Gateway, agent: ScriptedAgent) -> None:
    agent.send(map_frame(1_000_000, blocks=4))

    found = wait_for(lambda: gateway.device_map(job_id(gateway), 0, max_age_s=0), "the newest map")

    assert found.time_unix_us == 1_000_000


def test_one_thread_that_waits_for_a_map_does_not_hold_another(gateway: Gateway, agent: ScriptedAgent) -> None:
    # GIVEN a thread that waits for a job that does not answer yet
    job = job_id(gateway)
    waiting = threading.Thread(target=lambda: gateway.stack(job, 0, None, 1))
    waiting.start()
    request = agent.receive()

    # THEN another is answered meanwhile, over the same connection
    assert gateway.status().connected
    assert waiting.is_alive()
    agent.send({"kind": "reply", "request_id": request.header["request_id"], "ok": True, "frames": [], "reason": "off"})
    waiting.join(timeout=30)
    assert not waiting.is_alive()


def test_a_snapshot_is_written_by_the_job_and_listed(gateway: Gateway, agent: ScriptedAgent, folder: Path) -> None:
    # GIVEN a job that writes what it is asked for
    job = job_id(gateway)

    def write() -> None:
        request = agent.receive().header
        Path(request["path"]).write_bytes(b"x" * 99)
        agent.send(
            {"kind": "reply", "request_id": request["request_id"], "ok": True, "path": request["path"], "file_bytes": 1}
        )

    writing = threading.Thread(target=write)
    writing.start()

    # WHEN a snapshot is asked for
    found = gateway.dump(job)
    writing.join()

    # THEN it lies in the dumps' folder with its real size, and is listed
    assert (found.file_bytes, Path(found.path).parent) == (99, folder / "s" / "dumps")
    assert gateway.dumps(job) == gateway.dumps() == [found]
    assert gateway.dumps("another") == []


def test_a_snapshot_that_is_a_link_to_elsewhere_is_not_listed(gateway: Gateway, agent: ScriptedAgent) -> None:
    job = job_id(gateway)

    def write() -> None:
        request = agent.receive().header
        Path(request["path"]).symlink_to("/etc/hostname")
        agent.send({"kind": "reply", "request_id": request["request_id"], "ok": True})

    writing = threading.Thread(target=write)
    writing.start()
    with pytest.raises(VramscopeError, match="did not write a plain file"):
        gateway.dump(job)
    writing.join()
    assert gateway.dumps() == []


def test_an_ended_job_is_there_after_the_collector_has_gone(
    gateway: Gateway, agent: ScriptedAgent, collector: CollectorProcess
) -> None:
    # GIVEN a job that sent figures, a map and a mark, and ended
    for _ in range(3):
        agent.send(counters(now_us(), active_bytes=5 * MIB, num_ooms=None))
    agent.send(map_frame(now_us(), at="step_end"))
    agent.send(
        {"kind": "mark", "time_unix_us": now_us(), "mark": "user", "label": "epoch 3", "device": None, "step": 1}
    )
    agent.send({"kind": "bye", "reason": "exited"})
    job = job_id(gateway)
    wait_for(lambda: gateway.jobs()[0].ended, "the end to be known")
    live = gateway.stats(job, 0)

    # WHEN the collector has gone
    collector.stop()

    # THEN all of it comes from the history, unknown figures unknown
    assert gateway.jobs()[0].ranks[0].end_reason == "exited"
    assert gateway.stats(job, 0) == live
    found = gateway.device_map(job, 0)
    assert found is not None
    assert (found.block_count, gateway.device_map(job, 0)) == (4, found)
    timeline = gateway.timeline(job, 0, from_unix_us=None, to_unix_us=None, points=100)
    assert timeline is not None
    assert timeline.low["active_bytes"].tolist() == [5 * MIB] * 3
    assert all(math.isnan(value) for value in timeline.high["num_ooms"])
    assert [mark.kind for mark in timeline.marks] == ["start", "user", "end"]


def test_a_dashboard_starts_a_collector_only_where_none_runs(folder: Path, gateway: Gateway) -> None:
    settings = CollectorSettings(folder / "r", folder / "s", nvml=False)

    # WHEN none runs THEN one is started, detached, and answers
    pid = ensure_running(settings)
    assert pid is not None
    assert gateway.status().details["pid"] == pid
    assert "collecting on" in log_path(settings.state_folder).read_text()
    assert log_path(settings.state_folder).stat().st_mode & 0o777 == 0o600

    # WHEN one runs THEN it is left alone
    assert ensure_running(settings) is None
    stop(pid, gateway)


def test_a_collector_that_cannot_start_says_why(folder: Path) -> None:
    (folder / "s").mkdir(mode=0o700)
    (folder / "s" / "history.sqlite").write_text("no database, and long enough to be looked at" * 50)

    with pytest.raises(VramscopeError, match=r"could not start: .*move it away"):
        ensure_running(CollectorSettings(folder / "r", folder / "s", nvml=False), wait_s=30)


def test_a_dashboard_in_relative_folders_starts_a_collector_in_the_same(
    folder: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a dashboard that was told of folders as its shell sees them
    monkeypatch.chdir(folder)

    # WHEN it starts a collector, which works in another folder
    pid = ensure_running(CollectorSettings(Path("r"), Path("s"), nvml=False), wait_s=30)

    # THEN it is the one that answers there
    assert pid is not None
    assert gateway.status().details["pid"] == pid
    stop(pid, gateway)


def test_a_collector_starts_where_its_log_cannot_be_written(folder: Path, gateway: Gateway) -> None:
    # GIVEN a log that cannot be opened
    (folder / "s").mkdir(mode=0o700)
    log_path(folder / "s").mkdir()

    # THEN what it would say is lost, and nothing else
    pid = ensure_running(CollectorSettings(folder / "r", folder / "s", nvml=False), wait_s=30)
    assert pid is not None
    assert gateway.status().details["pid"] == pid
    stop(pid, gateway)


def stop(pid: int, gateway: Gateway) -> None:
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not gateway.status().connected, "the collector to stop")
