"""The live light, the banners, and the agent's cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dashboard.figures import states
from dashboard.figures.selection import Selection
from vramscope.records import CollectorStatus, DeviceInfo, DeviceStats, JobInfo, RankInfo

HERE = Selection("a", 0, 0)
UP = CollectorStatus(True)


def jobs(*, backend: str = "native", devices: bool = True, **changes: Any) -> list[JobInfo]:
    found = (DeviceInfo(0, "H100", None, None, backend),) if devices else ()
    rank = RankInfo(0, 0, 1, "node-03", 0, None, None, "2.14.1", {}, "history-free", found)
    return [JobInfo("a", "a", 1, False, (replace(rank, **changes),))]


def lines(status: CollectorStatus, known: list[JobInfo]) -> list[str]:
    return [line for _, line in states.banners(status, known, HERE, None)]


def test_the_light_tells_the_four_states() -> None:
    assert states.light(UP, jobs(), HERE) == "live"
    assert states.light(UP, jobs(ended_unix_us=5), HERE) == "ended"
    assert states.light(UP, [], HERE) == "none"
    assert states.light(CollectorStatus(False), jobs(), HERE) == "gone"


def test_a_quiet_page_has_no_banner() -> None:
    assert lines(UP, jobs()) == []


def test_an_ended_job_says_when_and_how() -> None:
    (line,) = lines(UP, jobs(ended_unix_us=1_790_000_000_000_000, end_reason="exited"))
    assert line.startswith("This job ended at 2026-")
    assert ": exited. " in line


def test_an_ended_job_leads_to_one_that_runs() -> None:
    ended, running = jobs(ended_unix_us=5)[0], jobs(started_unix_us=7)[0]
    earlier = replace(running, id="b", ranks=jobs(started_unix_us=6)[0].ranks)
    newest = replace(running, id="c")
    assert states.newer_job([ended, earlier, newest], HERE) == newest
    # AND nothing leads away from one that runs, or where none does
    assert states.newer_job([running, newest], HERE) is None
    assert states.newer_job([ended], HERE) is None


def test_a_missing_collector_says_what_to_do() -> None:
    assert "vramscope collect" in lines(CollectorStatus(False), [])[0]
    assert "stays on the page" in lines(CollectorStatus(False), jobs())[0]


def test_cuda_malloc_async_says_that_its_statistics_are_empty() -> None:
    assert "statistics are empty" in lines(UP, jobs(backend="cudaMallocAsync"))[0]


def test_a_rank_without_a_gpu_says_what_is_waited_for() -> None:
    assert "has not used a GPU yet" in lines(UP, jobs(devices=False))[0]


def test_notes_and_messages_come_last_once_each_and_quietly() -> None:
    status = CollectorStatus(True, ("NVML is missing", "NVML is missing"))
    found = states.banners(status, jobs(notes=("torch 2.4 copies",)), HERE, None)
    assert found == [("quiet", "Rank 0: torch 2.4 copies"), ("quiet", "NVML is missing")]


def test_the_agents_cost_is_told_as_far_as_it_is_known() -> None:
    stats = DeviceStats("a", 0, 0, 0, None, {}, {}, None, {}, None)
    assert states.agent_cost(stats) == ""
    agent = {
        "cost_ratio": 0.004,
        "budget_ratio": 0.01,
        "last_map_us": 2100,
        "longest_pause_us": 13_000,
        "dropped_frames": 2,
    }
    assert states.agent_cost(replace(stats, agent=agent)) == (
        "The agent's cost to the job: 0.4 % of wall time of a budget of 1.0 % · a map takes 2.1 ms · "
        "longest pause 13.0 ms · 2 messages dropped"
    )
