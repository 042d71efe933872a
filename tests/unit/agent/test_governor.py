"""The agent's budget, with a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from vramscope.agent.governor import WINDOW_US, CostWindow, Governor

SECOND = 1_000_000
TICK = 5_000


def governor(*, budget_ratio: float = 0.01, counters_hz: float = 10.0, map_interval_us: int = 2 * SECOND) -> Governor:
    return Governor(budget_ratio, counters_hz, map_interval_us)


def run(
    found: Governor,
    *,
    seconds: int,
    map_cost_us: float,
    counters_cost_us: float = 150.0,
    requested: bool = True,
    step_us: int | None = None,
) -> dict[str, list[int]]:
    """Play ``seconds`` of an agent whose samples cost what is said; return when counters, maps and step maps were taken."""
    taken: dict[str, list[int]] = {"counters": [], "any": [], "step_end": []}

    def sample(now_us: int, phase: str) -> None:
        at_step_end = phase == "step_end"
        if found.map_due(now_us, at_step_end=at_step_end, requested=requested):
            found.took_map(now_us, map_cost_us, at_step_end=at_step_end)
            found.spent(now_us, map_cost_us, map_cost_us)
            taken["step_end" if at_step_end else "any"].append(now_us)
        if found.counters_due(now_us, phase):
            found.took_counters(now_us, phase, counters_cost_us)
            found.spent(now_us, counters_cost_us)
            taken["counters"].append(now_us)

    for now_us in range(0, seconds * SECOND, TICK):
        sample(now_us, "timer")
        if step_us is not None and now_us % step_us == 0:
            found.stepped(now_us)
            for phase in ("forward_end", "backward_end", "step_end"):
                sample(now_us, phase)
    return taken


@pytest.mark.parametrize("map_cost_us", [300, 13_000, 80_000, 700_000])
@pytest.mark.parametrize("counters_cost_us", [100, 2_000])
@pytest.mark.parametrize("step_us", [None, 50_000, 400_000])
def test_the_budget_is_kept_whatever_samples_cost(
    map_cost_us: float, counters_cost_us: float, step_us: int | None
) -> None:
    # GIVEN a viewer that always wants a new map
    found = governor()

    # WHEN
    taken = run(found, seconds=300, map_cost_us=map_cost_us, counters_cost_us=counters_cost_us, step_us=step_us)

    # THEN over the whole run the share is under the budget, but for the first map, which tells nothing of the next, and
    # the last, which is not paid for yet
    maps = len(taken["any"]) + len(taken["step_end"])
    spent = (maps - 2) * map_cost_us + len(taken["counters"]) * counters_cost_us
    assert spent / (300 * SECOND) <= 0.01
    assert maps >= 2


def test_a_costly_first_map_does_not_keep_the_cheap_ones_away() -> None:
    # GIVEN a first map of 400 ms, of which a hundredth would be paid back in 40 s
    found = governor()
    found.took_map(0, 400_000, at_step_end=False)
    found.spent(0, 400_000, 400_000)

    # THEN the next waits until the window has forgotten it, and no longer
    assert not found.map_due(9 * SECOND, at_step_end=False, requested=True)
    assert found.map_due(11 * SECOND, at_step_end=False, requested=True)

    # WHEN that one is cheap THEN maps come as cheap ones do
    found.took_map(11 * SECOND, 1_000, at_step_end=False)
    found.spent(11 * SECOND, 1_000, 1_000)
    assert found.map_due(13 * SECOND, at_step_end=False, requested=True)


def test_cheap_samples_come_at_the_wanted_rate() -> None:
    # WHEN a map costs little and nobody asks for one
    taken = run(governor(), seconds=60, map_cost_us=500, requested=False)

    # THEN
    assert len(taken["any"]) == pytest.approx(30, abs=1)
    assert len(taken["counters"]) == pytest.approx(600, rel=0.05)


def test_counters_never_come_faster_than_wanted_though_hooks_and_timer_both_ask() -> None:
    taken = run(governor(), seconds=60, map_cost_us=500, step_us=70_000)
    assert len(taken["counters"]) <= 602


def test_costly_counters_are_stretched_and_the_report_says_so() -> None:
    # GIVEN counters of 5 ms, which at 10 Hz would be 5 %
    found = governor()

    # WHEN
    run(found, seconds=60, map_cost_us=0, counters_cost_us=5_000, requested=False)
    report = found.report(60 * SECOND)

    # THEN half of the budget, 0.5 %, buys one a second
    assert report["counters_hz"] == 1.0
    assert report["cost_ratio"] == pytest.approx(0.005, abs=0.0006)


def test_every_phase_of_a_fast_loop_is_seen() -> None:
    # GIVEN a loop of 100 ms, as long as the interval between samples
    found = governor()
    phases: list[str] = []

    # WHEN
    for now_us in range(0, 10 * SECOND, 100_000):
        for phase in ("forward_end", "backward_end", "step_end"):
            if found.counters_due(now_us, phase):
                found.took_counters(now_us, phase, 100)
                phases.append(phase)

    # THEN
    counts = {phase: phases.count(phase) for phase in set(phases)}
    assert set(counts) == {"forward_end", "backward_end", "step_end"}
    assert max(counts.values()) - min(counts.values()) <= 2


def test_while_the_job_steps_the_history_maps_are_those_of_step_ends() -> None:
    # WHEN nobody asks for maps
    taken = run(governor(), seconds=60, map_cost_us=500, requested=False, step_us=100_000)

    # THEN after the very first moment no map is taken in the middle of a step
    assert [at for at in taken["any"] if at > 0] == []
    assert len(taken["step_end"]) == pytest.approx(30, abs=1)


def test_a_viewer_does_not_starve_the_maps_of_step_ends() -> None:
    # WHEN a viewer always wants a map, and one costs all that the budget gives in two seconds
    taken = run(governor(), seconds=120, map_cost_us=20_000, requested=True, step_us=100_000)

    # THEN
    assert len(taken["step_end"]) >= 20


def test_a_job_that_does_not_step_has_its_history_from_the_timer() -> None:
    taken = run(governor(), seconds=20, map_cost_us=500, requested=False)
    assert len(taken["any"]) == pytest.approx(10, abs=1)


def test_a_job_that_stopped_stepping_gets_maps_from_the_timer_again() -> None:
    # GIVEN a job that stepped
    found = governor()
    run(found, seconds=10, map_cost_us=500, requested=False, step_us=100_000)

    # WHEN it evaluates, without steps
    later = 10 * SECOND + 3 * SECOND

    # THEN
    assert found.map_due(later, at_step_end=False, requested=False)


def test_the_report_has_the_longest_pause_and_forgets_old_cost() -> None:
    # GIVEN
    found = governor()
    found.spent(0, 50_000, 40_000)
    found.spent(SECOND, 1_000, 900)

    # THEN
    assert found.report(SECOND)["longest_pause_us"] == 40_000
    assert found.report(SECOND)["cost_ratio"] == pytest.approx(0.0051)
    assert found.report(SECOND + WINDOW_US)["cost_ratio"] == pytest.approx(0, abs=1e-3)
    assert found.report(60 * SECOND)["cost_ratio"] == 0
    assert found.report(60 * SECOND)["longest_pause_us"] == 40_000


def test_the_window_agrees_with_a_plain_sum() -> None:
    # GIVEN random costs
    source = random.Random(1)
    window, entries, now_us = CostWindow(), [], 0
    for _ in range(3000):
        now_us += source.randrange(0, 40_000)
        cost_us = source.random() * 1000
        window.add(now_us, cost_us)
        entries.append((now_us, cost_us))

    # WHEN
    exact = sum(cost for at, cost in entries if at > now_us - WINDOW_US) / WINDOW_US

    # THEN they differ by at most the oldest slot
    assert window.ratio(now_us) == pytest.approx(exact, rel=0.06)
