"""The agent against a collector on a real socket, with a source in memory."""

from __future__ import annotations

import logging
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fake_collector import FakeCollector
from tests.unit.agent.conftest import MakeAgent
from tests.unit.agent.fake_source import BASE, FakeSource, make_stats
from tests.waiting import wait_for
from vramscope import columns
from vramscope.agent.source import DeviceDescription
from vramscope.agent.wire import encode


def sends_counters(collector: FakeCollector) -> Any:
    return collector.wait("counters", count=2)


def test_a_welcomed_agent_announces_itself_and_sends_counters_and_maps(
    make_agent: MakeAgent, socket_path: Path
) -> None:
    # GIVEN
    source = FakeSource(lines=["a note"])
    with FakeCollector(socket_path) as collector:
        # WHEN
        agent = make_agent(source)
        counters = sends_counters(collector)
        (first_map, *_) = collector.wait("map")

        # THEN
        assert collector.frames[0].kind == "hello"
        hello = collector.frames[0].header
        assert (hello["role"], hello["protocol"]) == ("agent", 1)
        assert hello["job"] | {"host": "", "python_version": ""} == {
            "name": "test",
            "run_id": "42-7",
            "world_size": 2,
            "rank": 1,
            "local_rank": 1,
            "pid": 42,
            "host": "",
            "started_unix_us": 7,
            "torch_version": "2.14.1",
            "python_version": "",
            "alloc_conf": {},
            "simulated": False,
            "map_way": "history-free",
            "argv0": "train.py",
            "notes": ["a note"],
        }
        assert collector.wait("notes")[0].header["devices"] == [
            {"device": 0, "name": "Fake", "uuid": "GPU-0", "total_bytes": 8 << 30, "backend": "native"}
        ]
        assert counters[0].header["phase"] == "timer"
        assert counters[0].header["devices"][0]["reserved_bytes"] == 64 << 20
        assert {"cost_ratio", "budget_ratio", "longest_pause_us", "dropped_frames"} <= set(counters[0].header["agent"])
        assert columns.from_frame(first_map).block_bytes.tolist() == [512, 1024, 2048]
        assert agent.connected


def test_without_a_collector_the_agent_waits_quietly_and_finds_one_that_starts(
    make_agent: MakeAgent, socket_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN
    source = FakeSource()
    agent = make_agent(source)
    agent.mark("before the collector")

    # WHEN
    with FakeCollector(socket_path) as collector:
        (mark,) = collector.wait("mark", where=lambda header: header["mark"] == "user")

    # THEN what was marked meanwhile is not lost, and nobody was bothered
    assert mark.header["label"] == "before the collector"
    assert caplog.records == []


def test_nothing_is_sampled_while_no_collector_listens(make_agent: MakeAgent) -> None:
    # GIVEN an agent without a collector
    source = FakeSource()
    agent = make_agent(source, torch=torch)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)

    # WHEN the job steps
    for _ in range(50):
        optimizer.step()

    # THEN
    assert agent.step == 50
    assert source.samples == 0


def test_a_restarted_collector_is_found_again_within_three_seconds(make_agent: MakeAgent, socket_path: Path) -> None:
    # GIVEN
    agent = make_agent()
    with FakeCollector(socket_path) as first:
        sends_counters(first)
    wait_for(lambda: not agent.connected, "the end of the connection")

    # WHEN
    with FakeCollector(socket_path) as second:
        begin_s = time.monotonic()
        sends_counters(second)
        took_s = time.monotonic() - begin_s

    # THEN with a generous allowance for a busy machine
    assert second.frames[0].kind == "hello"
    assert second.frames[0].header["devices"] != []
    assert took_s < 10


def test_a_refusal_is_one_line_and_the_end(
    make_agent: MakeAgent, socket_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN
    greeting = {"kind": "refused", "message": "this collector speaks protocol 2"}
    with FakeCollector(socket_path, greeting=greeting) as collector:
        # WHEN
        agent = make_agent()
        wait_for(lambda: caplog.records, "the line in the log")
        # The first wait would be half a second.
        time.sleep(1.5)

        # THEN
        assert collector.accepted == 1
        assert not agent.connected
        assert [record.getMessage() for record in caplog.records] == [
            "vramscope: the collector refused this job: this collector speaks protocol 2"
        ]
        assert caplog.records[0].levelno == logging.WARNING


def test_a_temporary_refusal_is_tried_again(
    make_agent: MakeAgent, socket_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    greeting = {"kind": "refused", "message": "too many agents", "temporary": True}
    with FakeCollector(socket_path, greeting=greeting) as collector:
        make_agent()
        wait_for(lambda: collector.accepted >= 3, "another try")
    assert len(caplog.records) == 1


def test_a_collector_of_another_version_is_one_line(
    make_agent: MakeAgent, socket_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # GIVEN
    welcome = bytearray(encode({"kind": "welcome"}))
    welcome[4] = 9
    with FakeCollector(socket_path, raw_greeting=bytes(welcome)) as collector:
        # WHEN
        agent = make_agent()
        wait_for(lambda: collector.accepted >= 3, "another try")

    # THEN
    assert not agent.connected
    assert len(caplog.records) == 1
    assert "9" in caplog.records[0].getMessage()


def test_a_hanging_collector_costs_frames_and_never_a_torn_one(make_agent: MakeAgent, socket_path: Path) -> None:
    # GIVEN maps of some 8 MB, and a collector that stops reading after its welcome
    source = FakeSource()
    source.found_segments[0]["blocks"] *= 100_000
    with FakeCollector(socket_path, counters_hz=50, map_interval_us=1) as collector:
        agent = make_agent(source)
        collector.wait("map")
        collector.reads = False
        wait_for(lambda: agent._link.dropped_frames >= 3, "a dropped frame")

        # WHEN the job steps meanwhile
        begin_s = time.monotonic()
        agent.mark("still here")
        took_s = time.monotonic() - begin_s

        # THEN it does not wait
        assert took_s < 1

        # WHEN the collector reads again
        collector.reads = True
        frames = collector.wait("counters", where=lambda header: header["agent"]["dropped_frames"] >= 3)

        # THEN every frame is whole
        assert frames
        assert collector.errors == []


def test_a_map_is_sent_when_it_is_asked_for(make_agent: MakeAgent, socket_path: Path) -> None:
    # GIVEN a history interval that is far away
    with FakeCollector(socket_path, map_interval_us=10**9) as collector:
        make_agent()
        collector.wait("map")

        # WHEN
        collector.request(71, "map", device=0)

        # THEN
        frame = collector.answer_to(71)
        assert (frame.kind, frame.header["device"], frame.header["at"]) == ("map", 0, "any")


def test_a_request_over_the_budget_is_late_and_not_lost(make_agent: MakeAgent, socket_path: Path) -> None:
    # GIVEN snapshots of 50 ms and a budget of 5 %, one a second, and two of them, since the first tells nothing of the next
    with FakeCollector(socket_path, map_interval_us=10**9) as collector:
        make_agent(FakeSource(snapshot_s=0.05), budget_ratio=0.05)
        collector.wait("map")
        collector.request(71, "map", device=0)
        first = collector.answer_to(71)

        # WHEN
        collector.request(72, "map", device=0)
        frame = collector.answer_to(72)

        # THEN
        assert frame.header["time_unix_us"] - first.header["time_unix_us"] >= 1_000_000


@pytest.mark.parametrize(
    ("what", "fields", "error"),
    [
        ("map", {"device": 5}, "device 5 has no map"),
        ("map", {"device": None}, "device None has no map"),
        ("dump", {"path": "relative.pickle"}, "needs an absolute path"),
        ("dump", {"path": "/dev/null"}, "does not exist yet"),
        ("dump", {"path": "/absent-folder/x.pickle"}, "FileNotFoundError"),
        ("stack", {"device": 0}, "could not answer"),
        ("fly", {}, "does not know the request 'fly'"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(
    make_agent: MakeAgent, socket_path: Path, what: str, fields: dict[str, Any], error: str
) -> None:
    with FakeCollector(socket_path) as collector:
        make_agent()
        sends_counters(collector)
        collector.request(5, what, **fields)
        reply = collector.answer_to(5).header
        assert (reply["kind"], reply["ok"]) == ("reply", False)
        assert error in reply["error"]
        assert "\n" not in reply["error"]


def test_a_snapshot_is_written_whole_under_the_path_that_was_asked_for(
    make_agent: MakeAgent, socket_path: Path, tmp_path: Path
) -> None:
    with FakeCollector(socket_path) as collector:
        # GIVEN
        source = FakeSource()
        make_agent(source)
        sends_counters(collector)
        path = tmp_path / "dump.pickle"

        # WHEN
        collector.request(6, "dump", path=str(path))
        reply = collector.answer_to(6).header

        # THEN
        assert (reply["ok"], reply["path"], reply["file_bytes"]) == (True, str(path), path.stat().st_size)
        assert pickle.loads(path.read_bytes()) == {"segments": source.found_segments}
        assert [file.name for file in tmp_path.iterdir()] == ["dump.pickle"]


def test_a_snapshot_that_fails_leaves_no_file(make_agent: MakeAgent, socket_path: Path, tmp_path: Path) -> None:
    with FakeCollector(socket_path) as collector:
        source = FakeSource()
        make_agent(source)
        sends_counters(collector)
        source.fails = OSError(28, "No space left on device")
        collector.request(6, "dump", path=str(tmp_path / "dump.pickle"))
        reply = collector.answer_to(6).header
        assert reply["ok"] is False
        assert "No space left" in reply["error"]
        assert list(tmp_path.iterdir()) == []


def test_a_stack_is_told_with_the_reason_where_there_is_none(make_agent: MakeAgent, socket_path: Path) -> None:
    with FakeCollector(socket_path) as collector:
        # GIVEN
        make_agent(FakeSource(stacks={BASE: [("train.py", 7, "main")]}))
        sends_counters(collector)

        # WHEN
        for request_id, address in ((1, BASE), (2, BASE + 512)):
            collector.request(request_id, "stack", device=0, address=address)
        with_stack, without = collector.answer_to(1).header, collector.answer_to(2).header

        # THEN
        assert (with_stack["frames"], with_stack["reason"]) == ([["train.py", 7, "main"]], None)
        assert (without["frames"], without["reason"]) == ([], "history recording is off")


def test_a_job_that_uses_cuda_later_is_announced_then(make_agent: MakeAgent, socket_path: Path) -> None:
    with FakeCollector(socket_path) as collector:
        # GIVEN
        source = FakeSource(is_ready=False, lines=["this job has not used CUDA yet"])
        make_agent(source)
        hello = collector.wait("hello")[0].header
        assert (hello["devices"], hello["job"]["notes"]) == ([], ["this job has not used CUDA yet"])

        # WHEN
        source.is_ready, source.lines = True, []

        # THEN
        (notes,) = collector.wait("notes", where=lambda header: bool(header["devices"]))
        assert notes.header["notes"] == []
        sends_counters(collector)


def test_a_failing_source_is_told_once_and_tried_again(
    make_agent: MakeAgent, socket_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeCollector(socket_path) as collector:
        # GIVEN
        source = FakeSource(fails=RuntimeError("CUDA error: an illegal memory access"))
        make_agent(source, torch=torch)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)

        # WHEN the job steps while every sample fails
        wait_for(lambda: caplog.records, "the line in the log")
        for _ in range(100):
            optimizer.step()
        tries = source.samples
        source.fails = None

        # THEN the job went on, and the agent does so when it can
        (frame, *_) = collector.wait("counters")
        assert frame.header["agent"]["failures"] >= 1
        assert tries < 20
        assert len(caplog.records) == 1
        notes = collector.wait("notes", where=lambda header: any("illegal memory" in n for n in header["notes"]))
        assert notes


def test_steps_are_counted_sampled_and_marked(make_agent: MakeAgent, socket_path: Path) -> None:
    with FakeCollector(socket_path, map_interval_us=50_000) as collector:
        # GIVEN
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        agent = make_agent(torch=torch)
        agent.add(model, optimizer)
        sends_counters(collector)

        # WHEN
        begin_s = time.monotonic()
        seen: set[str] = set()
        while not seen >= {"forward_end", "backward_end", "step_end"} and time.monotonic() - begin_s < 20:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            seen = {frame.header["phase"] for frame in collector.of_kind("counters")}
            time.sleep(0.01)
        lasted_s = time.monotonic() - begin_s

        # THEN
        assert seen >= {"forward_end", "backward_end", "step_end"}
        (at_step_end, *_) = collector.wait("map", where=lambda header: header["at"] == "step_end")
        assert 1 <= at_step_end.header["step"] <= (agent.step or 0)
        marks = collector.wait("mark", where=lambda header: header["mark"] == "step")
        assert marks[0].header["label"] == str(marks[0].header["step"])
        assert len(marks) <= 4 * lasted_s + 2


def test_retries_of_the_allocator_are_marked(make_agent: MakeAgent, socket_path: Path) -> None:
    with FakeCollector(socket_path) as collector:
        source = FakeSource()
        make_agent(source)
        sends_counters(collector)
        source.stats[0] = make_stats(retries=1)
        (mark,) = collector.wait("mark", where=lambda header: header["mark"] == "retry")
        assert mark.header["device"] == 0


def test_an_allocator_without_statistics_sends_no_map(make_agent: MakeAgent, socket_path: Path) -> None:
    with FakeCollector(socket_path) as collector:
        make_agent(
            FakeSource(
                devices_seen=[DeviceDescription(0, "Fake", None, None, "cudaMallocAsync")],
                stats={0: {}},
                found_segments=[],
            )
        )
        collector.wait("counters", count=5)
        assert collector.of_kind("map") == []


def test_stop_says_bye_and_ends_the_thread(make_agent: MakeAgent, socket_path: Path) -> None:
    with FakeCollector(socket_path) as collector:
        # GIVEN
        agent = make_agent(torch=torch)
        sends_counters(collector)

        # WHEN
        agent.stop("detached", 10.0)

        # THEN
        assert not agent._thread.is_alive()
        assert collector.wait("bye")[0].header["reason"] == "detached"
        assert collector.frames[-1].kind == "bye"
        agent.mark("after the end")  # nothing happens, and nothing is raised


def test_a_collector_that_accepts_and_never_answers_costs_next_to_nothing(
    make_agent: MakeAgent, socket_path: Path
) -> None:
    # GIVEN an agent that knows its devices, and a second collector that hangs before its welcome
    agent = make_agent(torch=torch)
    with FakeCollector(socket_path) as first:
        sends_counters(first)
    with FakeCollector(socket_path, reads=False, raw_greeting=b"V") as second:
        wait_for(lambda: second.accepted, "the connection")
        samples = agent._source.samples  # type: ignore[attr-defined]

        # WHEN
        begin_s = time.monotonic()
        turns = 0
        turn = agent._turn

        def count_turn() -> None:
            nonlocal turns
            turns += 1
            turn()

        agent._turn = count_turn  # type: ignore[method-assign]
        time.sleep(2)

        # THEN it sleeps, and samples nothing
        assert turns <= 3 * (time.monotonic() - begin_s)
        assert agent._source.samples == samples  # type: ignore[attr-defined]


def test_marks_of_the_user_survive_many_steps_without_a_collector(make_agent: MakeAgent, socket_path: Path) -> None:
    # GIVEN
    agent = make_agent(torch=torch)
    agent.mark("early")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)

    # WHEN the job steps for longer than marks of steps are apart, before there is a collector
    for _ in range(3):
        optimizer.step()
        time.sleep(0.3)

    # THEN
    with FakeCollector(socket_path) as collector:
        assert [frame.header["label"] for frame in collector.wait("mark")] == ["early"]
        sends_counters(collector)
        assert len(collector.of_kind("mark")) == 1
