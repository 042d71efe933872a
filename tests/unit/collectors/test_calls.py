"""What viewers ask: fresh maps shared between them, answers in time, and one line where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.encoding import job_from_json, stats_from_json
from tests.collector_peers import SEGMENT_ADDRESS, counters, map_frame
from tests.unit.collectors.office import START_US, Office
from vramscope.agent.wire import columns
from vramscope.units import MIB

AGENT, VIEWER, OTHER = 1, 2, 3


@pytest.fixture
def office() -> Office:
    found = Office()
    found.viewer(VIEWER)
    found.viewer(OTHER)
    return found


def test_a_map_call_asks_the_job_and_gives_its_answer(office: Office) -> None:
    # GIVEN a job whose map is a second old
    job_id = office.agent(AGENT)
    office.say(AGENT, map_frame(START_US))
    office.wait(1)

    # WHEN a viewer asks for one of at most a quarter of a second
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=None, max_age_us=250_000)

    # THEN the job is asked, and its answer is passed on
    (request,) = office.requests(AGENT)
    assert (request["what"], request["device"]) == ("map", 0)
    assert office.replies(VIEWER) == []
    office.say(AGENT, map_frame(office.now_us, blocks=6, request_id=request["request_id"]))
    (reply,) = office.replies(VIEWER)
    assert (reply["ok"], reply["version"]) == (True, office.now_us)
    assert not office.calls.waiting


def test_a_map_that_is_young_enough_is_given_at_once(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.say(AGENT, map_frame(START_US))
    office.wait(0.2)

    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=250_000)

    assert office.requests(AGENT) == []
    assert office.replies(VIEWER)[0]["time_unix_us"] == START_US


def test_several_viewers_share_one_request(office: Office) -> None:
    job_id = office.agent(AGENT)

    for viewer in (VIEWER, OTHER):
        office.call(viewer, "map", job_id=job_id, device=0, rank=0, max_age_us=0)
    (request,) = office.requests(AGENT)
    office.say(AGENT, map_frame(START_US, request_id=request["request_id"]))

    assert [len(office.replies(viewer)) for viewer in (VIEWER, OTHER)] == [1, 1]


def test_a_job_that_does_not_answer_in_time_gives_its_newest_map_unchanged(office: Office) -> None:
    # GIVEN a job that is asked and does not answer
    job_id = office.agent(AGENT)
    office.say(AGENT, map_frame(START_US))
    office.wait(2)
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=0)

    # WHEN a second and a half has passed
    office.wait(1.4)
    assert office.replies(VIEWER) == []
    office.wait(0.2)

    # THEN the viewer gets the map that is there, and asking again does not ask the job again
    assert office.replies(VIEWER)[0]["version"] == START_US
    office.call(VIEWER, "map", 2, job_id=job_id, device=0, rank=0, max_age_us=0)
    assert len(office.requests(AGENT)) == 1


def test_a_request_that_was_never_answered_is_made_again_later(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=0)

    for _ in range(6):
        office.wait(2)
    office.call(VIEWER, "map", 2, job_id=job_id, device=0, rank=0, max_age_us=0)

    assert len(office.requests(AGENT)) == 2


def test_a_job_over_its_budget_holds_no_viewer_a_second_time(office: Office) -> None:
    # GIVEN a job that was asked for a map and has not answered in time
    job_id = office.agent(AGENT)
    office.say(AGENT, map_frame(START_US))
    office.wait(1)
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=0)
    office.wait(1.6)
    assert len(office.replies(VIEWER)) == 1

    # WHEN others ask meanwhile THEN they get the newest map at the next look, and the job is not asked again
    office.call(OTHER, "map", job_id=job_id, device=0, rank=0, max_age_us=0)
    office.wait(0.05)
    assert office.replies(OTHER)[0]["time_unix_us"] == START_US
    assert len(office.requests(AGENT)) == 1


def test_a_map_before_any_came_is_refused_with_one_line(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=0)

    office.hang_up(AGENT)

    (reply,) = office.replies(VIEWER)
    assert (reply["ok"], reply["error"][:19]) == (False, "no map has arrived ")


def test_the_boundary_is_the_active_blocks_of_the_last_end_of_a_step(office: Office) -> None:
    # GIVEN a map at the end of a step, and a later one in the middle of the next
    job_id = office.agent(AGENT)
    office.say(AGENT, map_frame(START_US, blocks=4, at="step_end"))
    office.say(AGENT, map_frame(START_US + 1, blocks=8, at="any"))

    # WHEN a viewer asks for the map
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=10**9)

    # THEN it is the later one, with the addresses that were active at the end of the step
    found = columns(office.sent[VIEWER][-1])
    assert len(found["block_address"]) == 8
    assert found["boundary_address"].tolist() == [SEGMENT_ADDRESS, SEGMENT_ADDRESS + 2 * MIB]


def test_a_map_without_a_step_has_no_boundary(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.say(AGENT, map_frame(START_US, at="any"))

    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=10**9)

    assert "boundary_address" not in columns(office.sent[VIEWER][-1])


def test_jobs_and_stats_read_back_as_they_were(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.say(AGENT, counters(START_US, active_bytes=5 * MIB, step=7))
    office.say(AGENT, map_frame(START_US + 1))

    office.call(VIEWER, "jobs", 1)
    office.call(VIEWER, "stats", 2, job_id=job_id, device=0, rank=None)

    jobs, stats = (reply["result"] for reply in office.replies(VIEWER))
    assert [job_from_json(job) for job in jobs["jobs"]] == [office.jobs.by_id[job_id].record()]
    found = stats_from_json(stats)
    assert (found.step, found.counters["active_bytes"], found.counters["segments"]) == (7, 5 * MIB, None)
    assert found.from_map["largest_free_block_bytes"] == MIB
    assert found.agent["budget_ratio"] == 0.01


def test_a_dump_is_listed_once_the_file_is_there(office: Office) -> None:
    # GIVEN a job that is asked for a snapshot
    job_id = office.agent(AGENT)
    office.call(VIEWER, "dump", job_id=job_id, rank=None)
    (request,) = office.requests(AGENT)
    path = Path(request["path"])
    assert (path.parent, path.suffix) == (Path("/dumps"), ".pickle")

    # WHEN it wrote the file and says so
    office.files[path] = 4242
    office.say(
        AGENT,
        {"kind": "reply", "request_id": request["request_id"], "ok": True, "path": "/etc/passwd", "file_bytes": 1},
    )

    # THEN the listed path and size are the collector's own, whatever the job said
    (reply,) = office.replies(VIEWER)
    assert (reply["result"]["path"], reply["result"]["file_bytes"]) == (str(path), 4242)
    office.call(OTHER, "dumps", job_id=None)
    assert office.replies(OTHER)[0]["result"]["dumps"] == [reply["result"]]
    assert [dump.path for dump in office.jobs.take_changes().dumps] == [str(path)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"ok": True}, "is not there"),
        ({"ok": False, "error": "No space left on device"}, "No space left on device"),
        ({}, "did not say why"),
    ],
)
def test_a_dump_that_failed_says_why(office: Office, answer: dict[str, object], words: str) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "dump", job_id=job_id, rank=0)

    office.say(AGENT, {"kind": "reply", "request_id": office.requests(AGENT)[0]["request_id"], **answer})

    (reply,) = office.replies(VIEWER)
    assert not reply["ok"]
    assert words in reply["error"]
    assert office.jobs.take_changes().dumps == []


def test_a_stack_is_passed_on(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "stack", job_id=job_id, device=0, rank=0, address=512)
    (request,) = office.requests(AGENT)
    assert (request["what"], request["address"]) == ("stack", 512)

    frames = [["train.py", 88, "main"]]
    office.say(
        AGENT, {"kind": "reply", "request_id": request["request_id"], "ok": True, "frames": frames, "reason": None}
    )

    assert office.replies(VIEWER)[0]["result"] == {"frames": frames, "reason": None}


@pytest.mark.parametrize("answer", [{"frames": [["a"]]}, {"frames": 5}, {"frames": [["a", "b", "c"]]}])
def test_a_stack_of_another_shape_is_refused(office: Office, answer: dict[str, object]) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "stack", job_id=job_id, device=0, rank=0, address=512)

    office.say(AGENT, {"kind": "reply", "request_id": office.requests(AGENT)[0]["request_id"], "ok": True, **answer})

    assert "cannot read" in office.replies(VIEWER)[0]["error"]


def test_an_agent_cannot_answer_what_another_was_asked(office: Office) -> None:
    job_id = office.agent(AGENT, pid=10)
    office.agent(9, pid=11, run_id="run-2")
    office.call(VIEWER, "stack", job_id=job_id, device=0, rank=0, address=512)

    office.say(9, {"kind": "reply", "request_id": office.requests(AGENT)[0]["request_id"], "ok": True, "frames": []})

    assert office.replies(VIEWER) == []


def test_an_agent_that_goes_away_fails_what_waits_for_it(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "dump", job_id=job_id, rank=0)

    office.hang_up(AGENT)

    assert "disconnected before it answered" in office.replies(VIEWER)[0]["error"]


def test_a_viewer_that_goes_away_is_not_answered(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.call(VIEWER, "map", job_id=job_id, device=0, rank=0, max_age_us=0)

    office.hang_up(VIEWER)
    office.say(AGENT, map_frame(START_US, request_id=office.requests(AGENT)[0]["request_id"]))

    assert office.replies(VIEWER) == []


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("stats", {"job_id": "no", "device": 0, "rank": None}, "no job no "),
        ("stats", {"device": "x"}, "a whole number"),
        ("stats", {"job_id": {}, "device": 0}, "no job (dict)"),
        ("map", {"job_id": ["x"], "device": 0}, "no job (list)"),
        ("dump", {"job_id": "no"}, "no job no is known"),
        ("shutdown", {}, "does not know the call 'shutdown'"),
    ],
)
def test_a_call_that_makes_no_sense_gets_one_line(
    office: Office, method: str, params: dict[str, Any], words: str
) -> None:
    office.call(VIEWER, method, **params)

    (reply,) = office.replies(VIEWER)
    assert not reply["ok"]
    assert words in reply["error"]
    assert VIEWER not in office.closed


def test_a_job_that_ended_refuses_what_needs_its_process(office: Office) -> None:
    job_id = office.agent(AGENT)
    office.say(AGENT, {"kind": "bye", "reason": "exited"})
    office.hang_up(AGENT)

    office.call(VIEWER, "dump", job_id=job_id, rank=0)

    assert "the job has ended" in office.replies(VIEWER)[0]["error"]
