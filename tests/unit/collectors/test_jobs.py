"""Agents' connections: who is a rank of which job, what becomes of it, and which samples are kept."""

from __future__ import annotations

import json
import math

import pytest

from collectors.jobs import ENDED_UNSEEN, LOST, RETRYING
from tests.collector_peers import counters, hello, map_frame
from tests.unit.collectors.office import SECOND, START_US, Office
from vramscope.records import HISTORY
from vramscope.units import MIB


def test_ranks_that_announce_the_same_run_are_one_job() -> None:
    # GIVEN four ranks of one run, on different hosts, and one rank of another run
    office = Office()
    ids = [office.agent(rank, rank, pid=10 + rank, world_size=4) for rank in range(4)]
    other = office.agent(9, 0, pid=20, world_size=4, run_id="run-2")

    # THEN the four have one id, safe in a URL, and the fifth has its own
    assert len(set(ids)) == 1
    assert ids[0].isalnum()
    assert other != ids[0]
    assert [rank.rank for rank in office.jobs.by_id[ids[0]].record().ranks] == [0, 1, 2, 3]


def test_two_live_processes_that_claim_the_same_rank_are_two_jobs() -> None:
    # GIVEN two processes that run at once and announce the same rank of the same run
    office = Office()
    first, second = office.agent(1, pid=10), office.agent(2, pid=11)

    # THEN neither overwrites the other
    assert first != second


def test_a_rank_that_was_started_anew_is_the_same_job() -> None:
    # GIVEN a rank whose process has gone, as torchelastic restarts them
    office = Office()
    first = office.agent(1, pid=10)
    office.say(1, counters(START_US))
    office.say(1, map_frame(START_US))
    office.hang_up(1)
    del office.processes[10]

    # WHEN its successor announces itself before anyone noticed
    second = office.agent(2, pid=11)

    # THEN it is the same job, and its start is marked twice
    assert second == first
    kinds = [mark.kind for _job, mark, _lasting in office.jobs.take_changes().marks]
    assert kinds == ["start", "start"]
    # AND the figures and the map of the process that has gone are not shown as the new one's
    series = office.jobs.by_id[first].ranks[0].series[0]
    assert (series.counters, series.map, series.newest_us) == ({}, None, START_US)


def test_an_agent_that_says_bye_has_ended() -> None:
    office = Office()
    job_id = office.agent(1)

    office.say(1, {"kind": "bye", "reason": "exited"})
    office.hang_up(1)
    office.wait(60)

    (rank,) = office.jobs.by_id[job_id].record().ranks
    assert (rank.end_reason, rank.ended_unix_us) == ("exited", START_US)


def test_an_agent_that_vanishes_with_its_process_is_lost_after_the_grace() -> None:
    # GIVEN an agent whose process was killed
    office = Office()
    job_id = office.agent(1, pid=10)
    office.hang_up(1)
    del office.processes[10]

    # WHEN the grace has not passed THEN nothing is said yet
    office.wait(2)
    assert office.jobs.by_id[job_id].record().ranks[0].ended_unix_us is None

    # WHEN it has THEN the rank ended when its connection did
    office.wait(2)
    (rank,) = office.jobs.by_id[job_id].record().ranks
    assert (rank.end_reason, rank.ended_unix_us) == (LOST, START_US)


def test_an_agent_that_vanishes_while_its_process_lives_is_retrying_and_comes_back() -> None:
    # GIVEN an agent that lost its connection while its process lives
    office = Office()
    job_id = office.agent(1, pid=10)
    office.say(1, counters(START_US))
    office.hang_up(1)

    # WHEN the grace has passed THEN a note says so, once
    for _ in range(3):
        office.wait(4)
    assert office.jobs.by_id[job_id].record().ranks[0].notes == (RETRYING,)

    # WHEN it is back THEN the note is gone, the series goes on, and the gap is marked
    assert office.agent(2, pid=10) == job_id
    (rank,) = office.jobs.by_id[job_id].record().ranks
    assert (rank.notes, rank.ended_unix_us) == ((), None)
    kinds = [mark.kind for _job, mark, _lasting in office.jobs.take_changes().marks]
    assert kinds == ["start", "gap"]


def test_a_pid_that_was_given_to_another_process_does_not_keep_a_job_alive() -> None:
    office = Office()
    job_id = office.agent(1, pid=10)
    office.hang_up(1)

    office.processes[10] = 99
    office.wait(4)

    assert office.jobs.by_id[job_id].record().ended


def test_after_a_restart_jobs_whose_process_has_gone_are_ended_when_they_were_last_seen() -> None:
    # GIVEN two jobs that an earlier collector knew as running
    before = Office()
    gone, alive = before.agent(1, pid=10), before.agent(2, pid=11, run_id="run-2")
    for connection in (1, 2):
        before.say(connection, counters(START_US + 5))
    office = Office()
    office.processes[11] = 7
    for job in before.jobs.by_id.values():
        office.jobs.load(
            job.record(), job.key.run_id, {(gone, 0): (10, 7), (alive, 0): (11, 7)}, {(job.id, 0, 0): START_US + 5}
        )

    # WHEN the new collector looks
    office.wait(60)

    # THEN one has ended, the other waits for its agent
    (lost,), (kept,) = (office.jobs.by_id[job_id].record().ranks for job_id in (gone, alive))
    assert (lost.ended_unix_us, lost.end_reason) == (START_US + 5, ENDED_UNSEEN)
    assert (kept.ended_unix_us, kept.notes) == (None, (RETRYING,))


def test_samples_are_kept_with_what_maps_and_nvml_tell() -> None:
    # GIVEN counters before and after a map
    office = Office()
    job_id = office.agent(1)
    office.say(1, counters(START_US + 1, active_bytes=5 * MIB, num_ooms=None))
    office.say(1, map_frame(START_US + 2))
    office.say(1, counters(START_US + 3, active_bytes=6 * MIB))

    # WHEN the store takes them
    (samples,) = office.jobs.take_changes().samples.values()
    by_name = {name: samples.low[:, i].tolist() for i, name in enumerate(HISTORY)}

    # THEN each has what was known at its moment, and what was not is NaN, never 0
    assert samples.time_unix_us.tolist() == [START_US + 1, START_US + 3]
    assert by_name["active_bytes"] == [5 * MIB, 6 * MIB]
    assert math.isnan(by_name["num_ooms"][0])
    assert math.isnan(by_name["largest_free_block_bytes"][0])
    assert by_name["largest_free_block_bytes"][1] == MIB
    assert all(math.isnan(value) for value in by_name["nvml_used_bytes"])
    assert office.jobs.by_id[job_id].ranks[0].series[0].counters["num_ooms"] == 0


def test_the_largest_fit_takes_the_free_bytes_of_the_maps_own_moment() -> None:
    # GIVEN counters whose free bytes were asked for when the job had 300 MiB, and a map of when it had 4 MiB
    office = Office()
    job_id = office.agent(1)
    office.say(1, counters(START_US, reserved_bytes=300 * MIB, device_free_bytes=100 * MIB))
    office.say(1, counters(START_US + 1, reserved_bytes=200 * MIB, device_free_bytes=100 * MIB))

    office.say(1, map_frame(START_US + 2, blocks=4))

    # THEN what the job gave back counts as free, and the figure is called an estimate
    figures = office.jobs.by_id[job_id].ranks[0].series[0].figures
    assert (figures["largest_fit_bytes"], figures["largest_fit_is_estimate"]) == (396 * MIB, True)

    # WHEN both are of one moment THEN it is none
    office.say(1, counters(START_US + 3, reserved_bytes=4 * MIB, device_free_bytes=90 * MIB))
    office.say(1, map_frame(START_US + 4, blocks=4))
    figures = office.jobs.by_id[job_id].ranks[0].series[0].figures
    assert (figures["largest_fit_bytes"], figures["largest_fit_is_estimate"]) == (90 * MIB, False)


def test_a_map_that_came_before_the_drivers_word_gets_its_largest_fit_with_it() -> None:
    # GIVEN a map before any counters
    office = Office()
    job_id = office.agent(1)
    office.say(1, map_frame(START_US, blocks=4))
    series = office.jobs.by_id[job_id].ranks[0].series[0]
    assert series.figures["largest_fit_way"] is None

    # WHEN counters tell what the driver had free THEN the same map tells what would fit
    office.say(1, counters(START_US + 1, reserved_bytes=4 * MIB, device_free_bytes=90 * MIB))
    assert (series.figures["largest_fit_bytes"], series.figures["largest_fit_is_estimate"]) == (90 * MIB, False)


def test_a_figure_of_an_old_map_is_unknown_again() -> None:
    office = Office()
    office.agent(1)
    office.say(1, map_frame(START_US))

    office.wait(11)
    office.say(1, counters(office.now_us))

    (samples,) = office.jobs.take_changes().samples.values()
    assert math.isnan(samples.low[0, HISTORY.index("largest_fit_bytes")])


@pytest.mark.parametrize("shift_us", [-1, 0, 61 * SECOND], ids=["older", "same", "future"])
def test_a_sample_whose_clock_jumped_is_dropped_and_counted(shift_us: int) -> None:
    office = Office()
    office.agent(1)
    office.say(1, counters(START_US))

    office.say(1, counters(START_US + shift_us))

    (samples,) = office.jobs.take_changes().samples.values()
    assert (len(samples.time_unix_us), office.jobs.dropped_samples) == (1, 1)


def test_what_other_ranks_reserved_on_the_same_gpu_is_told_apart() -> None:
    # GIVEN two jobs on one GPU, whose UUID one of them gives without its prefix, and one on another GPU
    office = Office()
    device = {"device": 0, "name": "GPU", "total_bytes": 1, "backend": "native"}
    for number, uuid in enumerate(("GPU-aB", "ab", "GPU-cd", None)):
        office.agent(number, pid=number + 10, run_id=f"run-{number}", devices=[{**device, "uuid": uuid}])
        office.say(number, counters(START_US + 1, reserved_bytes=1 << number))

    # WHEN each is asked for
    found = [office.jobs.stats(job, job.ranks[0], 0).reserved_by_others_bytes for job in office.jobs.by_id.values()]

    # THEN each of the pair sees the other, the third nobody, and the fourth does not know
    assert found == [2, 1, 0, None]


def test_step_marks_last_one_a_minute_and_others_all() -> None:
    office = Office()
    office.agent(1)
    office.jobs.take_changes()

    for second in range(0, 121, 20):
        office.wait(20 if second else 0)
        for kind in ("step", "user"):
            office.say(
                1, {"kind": "mark", "time_unix_us": office.now_us, "mark": kind, "label": f"{second}", "device": None}
            )

    marks = office.jobs.take_changes().marks
    assert [mark.label for _job, mark, lasting in marks if mark.kind == "step" and lasting] == ["0", "60", "120"]
    assert all(lasting for _job, mark, lasting in marks if mark.kind == "user")


def test_notes_replace_devices_and_lines() -> None:
    office = Office()
    job_id = office.agent(1, devices=[])
    device = {"device": 3, "name": "GPU", "uuid": None, "total_bytes": None, "backend": "cudaMallocAsync"}

    office.say(1, {"kind": "notes", "notes": ["its statistics are empty"], "devices": [device]})

    (rank,) = office.jobs.by_id[job_id].record().ranks
    assert rank.notes == ("its statistics are empty",)
    assert [(one.device, one.backend) for one in rank.devices] == [(3, "cudaMallocAsync")]
    assert office.jobs.find(job_id, 3, None) is not None


def bad_hello(**changes: object) -> dict[str, object]:
    message = hello()
    message["job"] |= changes
    return message


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({**hello(), "protocol": 99}, "speaks protocol version 99"),
        ({**hello(), "role": "admin"}, "the role 'admin'"),
        ({**hello(), "job": None}, "does not say which job"),
        ({**hello(), "devices": {}}, "devices are not a list"),
        ({**hello(), "devices": [{}] * 65}, "devices are not a list of at most 64"),
        (bad_hello(rank="0"), "rank that is not a whole number"),
        (bad_hello(rank=-1), "rank that is not a whole number"),
        (bad_hello(rank=True), "rank that is not a whole number"),
        (bad_hello(pid=1 << 63), "pid that is not a whole number"),
        ({"kind": "counters"}, "must be a hello"),
    ],
)
def test_a_hello_that_cannot_be_is_refused_with_one_line(message: dict[str, object], words: str) -> None:
    # GIVEN a good agent
    office = Office()
    job_id = office.agent(1, pid=10)

    # WHEN another says something else first
    office.open(2)
    office.say(2, message)

    # THEN it is told why in one line and closed, and the good one goes on
    assert office.sent[2][-1].kind == "refused"
    assert words in office.sent[2][-1].header["message"]
    assert "\n" not in office.closed[2]
    office.say(1, counters(START_US + 1))
    assert list(office.jobs.by_id) == [job_id]


def test_a_connection_without_a_hello_is_closed_after_the_deadline() -> None:
    office = Office()
    office.open(1)

    office.wait(4.9)
    assert office.closed == {}

    office.wait(0.2)
    assert "no hello within 5 s" in office.closed[1]


def test_text_from_a_job_is_one_short_line_that_can_be_stored() -> None:
    office = Office()
    job_id = office.agent(1, name="a\nb\ud800" + "x" * 1000)

    name = office.jobs.by_id[job_id].key.name
    assert name.startswith("a b?xxx")
    assert len(name) <= 300
    assert json.dumps(name).encode()


def test_maps_of_many_ended_jobs_are_left_to_the_store() -> None:
    office = Office()
    ids = []
    for number in range(18):
        office.now_us += SECOND
        ids.append(office.agent(number, pid=number + 10, run_id=f"run-{number}"))
        office.say(number, map_frame(office.now_us))
        office.say(number, {"kind": "bye", "reason": "exited"})
        office.hang_up(number)

    office.wait(1)

    in_memory = [office.jobs.by_id[job_id].ranks[0].series[0].map is not None for job_id in ids]
    assert in_memory == [False] * 2 + [True] * 16


def test_a_process_that_cannot_be_looked_at_is_not_called_dead() -> None:
    # GIVEN a job whose agent has gone, and a collector without a descriptor to look with
    office = Office()
    job_id = office.agent(1)
    office.hang_up(1)

    def no_descriptor(pid: int) -> int | None:
        raise OSError(24, "Too many open files")

    look, office.jobs._process_start = office.jobs._process_start, no_descriptor

    # WHEN time passes THEN the job still runs
    office.wait(10)
    assert not office.jobs.by_id[job_id].record().ended

    # WHEN it can be looked at, and the process has gone THEN it has ended
    office.processes.clear()
    office.jobs._process_start = look
    office.wait(10)
    assert office.jobs.by_id[job_id].record().ended
