from __future__ import annotations

import pytest

from tests.unit.demo.conftest import make_bench
from vramscope.demo.job import PAUSE_S, STORAGES_PER_PAUSE, Pace, Stopped


def test_the_training_pauses_a_little_each_so_many_storages() -> None:
    slept: list[float] = []
    pace = Pace(sleep=slept.append)
    for _ in range(3 * STORAGES_PER_PAUSE - 1):
        pace.storage()
    assert slept == [PAUSE_S, PAUSE_S]


def test_a_wait_takes_as_long_as_asked() -> None:
    slept: list[float] = []
    Pace(sleep=slept.append).wait(0.7)
    assert sum(slept) == pytest.approx(0.7)


def test_a_stop_ends_the_training_at_its_next_storage_or_wait() -> None:
    pace = Pace(sleep=lambda seconds: None)
    pace.stop()
    with pytest.raises(Stopped):
        pace.storage()
    with pytest.raises(Stopped):
        pace.wait(1.0)


def test_a_stop_during_a_wait_ends_it_early() -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        pace.stop()

    pace = Pace(sleep=sleep)
    with pytest.raises(Stopped):
        pace.wait(60.0)
    assert len(slept) == 1


def test_steps_are_counted_from_1_and_end_where_asked() -> None:
    assert list(make_bench(steps=3).job.step_numbers()) == [1, 2, 3]
    endless = make_bench(steps=None).job.step_numbers()
    assert [next(endless) for _ in range(3)] == [1, 2, 3]
