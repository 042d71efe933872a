"""Which job, rank and GPU the page shows."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard import ids
from dashboard.callbacks.pickers import picked, picker_properties
from dashboard.figures.selection import Selection, find_rank, from_search, job_label, resolve
from vramscope.records import DeviceInfo, JobInfo, RankInfo


def rank(number: int, *devices: int, started: int = 0, ended: int | None = None, host: str = "node-03") -> RankInfo:
    found = tuple(DeviceInfo(device, "H100", None, None) for device in devices)
    return RankInfo(number, number, 1, host, started, ended, None, "2.14.1", {}, "history-free", found)


def job(name: str, *ranks: RankInfo, **changes: Any) -> JobInfo:
    return JobInfo(name, name, changes.get("world_size", len(ranks)), changes.get("simulated", False), ranks)


def test_without_jobs_nothing_is_chosen() -> None:
    assert resolve([], Selection("old", 1, 1)).selection == Selection()


def test_a_running_job_comes_before_an_ended_one_and_a_new_one_before_an_old_one() -> None:
    jobs = [
        job("ended", rank(0, 0, started=9, ended=10)),
        job("old", rank(0, 0, started=1)),
        job("new", rank(0, 0, started=5)),
    ]
    found = resolve(jobs, Selection())
    assert found.selection == Selection("new", 0, 0)
    assert [name for name, _ in found.jobs] == ["new", "old", "ended"]


def test_what_is_shown_stays_when_another_job_comes_or_it_ends() -> None:
    jobs = [job("mine", rank(0, 0, ended=10)), job("new", rank(0, 0, started=99))]
    assert resolve(jobs, Selection("mine", 0, 0)).selection == Selection("mine", 0, 0)


def test_a_rank_or_gpu_that_is_not_there_gives_way_to_the_first() -> None:
    jobs = [job("a", rank(0, 2, 3), rank(1, 5))]
    assert resolve(jobs, Selection("a", 7, 9)).selection == Selection("a", 0, 2)
    assert resolve(jobs, Selection("a", 1, 2)).selection == Selection("a", 1, 5)


def test_a_rank_without_a_gpu_is_passed_over_until_it_is_picked() -> None:
    jobs = [job("a", rank(0), rank(1, 0))]
    assert resolve(jobs, Selection()).selection == Selection("a", 1, 0)
    assert resolve(jobs, Selection("a", 0)).selection == Selection("a", 0, None)


@pytest.mark.parametrize(
    ("search", "selection"),
    [
        ("?job=a%26b&rank=3&gpu=1", Selection("a&b", 3, 1)),
        ("", Selection()),
        (None, Selection()),
        ("?rank=x&gpu=-1", Selection()),
        ("?rank=" + "9" * 30, Selection()),
    ],
)
def test_the_url_says_what_is_wished_for(search: str | None, selection: Selection) -> None:
    assert from_search(search) == selection


def test_a_label_names_ranks_hosts_and_the_end() -> None:
    assert job_label(job("sft", rank(0), rank(1))) == "sft · 2 ranks · node-03"
    assert job_label(job("sft", rank(0, ended=1))) == "sft · 1 rank · node-03 · ended"
    assert job_label(job("sft", rank(0), world_size=8)) == "sft · 8 ranks · node-03"
    many = job("sft", rank(0, host="a"), rank(1, host="b"), rank(2, host="c"))
    assert job_label(many) == "sft · 3 ranks · a, b …"


def test_a_rank_is_found_or_not() -> None:
    jobs = [job("a", rank(0))]
    assert find_rank(jobs, Selection("a", 0)) == (jobs[0], jobs[0].ranks[0])
    assert find_rank(jobs, Selection("a", 1)) is None
    assert find_rank(jobs, Selection("b", 0)) is None


def test_few_ranks_are_buttons_and_many_a_menu() -> None:
    few = picker_properties(resolve([job("a", *(rank(n, 0) for n in range(8)))], Selection()))
    assert (len(few["rank.options"]), few["rank-menu.options"], few["rank_class"]) == (8, [], "picker")
    many = picker_properties(resolve([job("a", *(rank(n, 0) for n in range(9)))], Selection()))
    assert (many["rank.options"], len(many["rank-menu.options"]), many["rank_class"]) == ([], 9, "picker menu")
    assert many["rank-menu.value"] == 0


def test_a_picker_without_a_choice_is_hidden() -> None:
    assert picker_properties(resolve([job("a", rank(0, 0))], Selection()))["gpu_class"] == "picker hidden"


def test_a_simulated_job_is_marked_and_the_teaching_page_goes_with_the_first_job() -> None:
    shown = picker_properties(resolve([job("a", rank(0, 0), simulated=True)], Selection()))
    assert (shown["simulated"], shown["empty"], shown["picture"]) == (False, True, False)
    none = picker_properties(resolve([], Selection()))
    assert (none["simulated"], none["empty"], none["picture"]) == (True, False, True)


def test_a_pick_counts_whatever_brings_it() -> None:
    # GIVEN rank 0 of a job on the page
    shown = Selection("a", 0, 1)
    at_rest = {ids.JOB: "a", ids.RANK: 0, ids.RANK_MENU: None, ids.GPU: 1, ids.GPU_MENU: None}
    # THEN pickers that say the same change nothing
    assert picked(shown, at_rest) == shown
    # AND another rank, in the row or in the menu, is picked even where only the tick tells the server about it
    assert picked(shown, {**at_rest, ids.RANK: 2}) == Selection("a", 2, 1)
    assert picked(shown, {**at_rest, ids.RANK: None, ids.RANK_MENU: 12}) == Selection("a", 12, 1)
    assert picked(shown, {**at_rest, ids.JOB: "b"}) == Selection("b", 0, 1)
