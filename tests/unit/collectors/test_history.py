"""Timelines: the resolution that a view needs, gaps, and which marks are shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from collectors import history
from collectors.changes import Changes
from collectors.rollup import METRIC_COUNT, Points
from collectors.store import Store
from tests.unit.collectors.office import SECOND
from tests.unit.collectors.test_store import BASE_US, HOUR, MINUTE, changes_of
from vramscope.records import Mark, Timeline


class Written:
    """A history with one series, to be written and then read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store = Store(path, cap_bytes=1 << 30)

    def add(
        self, start_us: int, seconds: int, *, hz: int = 10, marks: list[Mark] | None = None, now_us: int = 0
    ) -> None:
        time_us = start_us + np.arange(seconds * hz) * (SECOND // hz)
        # A value that names its sample, so that a wrong one shows.
        values = np.repeat(time_us.astype(float)[:, None], METRIC_COUNT, axis=1)
        changes = changes_of(Points(time_us, values, values))
        changes.marks = [("job", mark, True) for mark in marks or []]
        self._store.flush(changes, now_us)

    def prune(self, now_us: int) -> None:
        self._store.flush(Changes(), now_us)

    def timeline(self, points: int, from_us: int | None = None, to_us: int | None = None) -> Timeline:
        connection = history.open_history(self._path)
        try:
            return history.read_timeline(
                connection, 1, "job", 0, 0, from_unix_us=from_us, to_unix_us=to_us, points=points
            )
        finally:
            connection.close()

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    found = Written(tmp_path / "history.sqlite")
    yield found
    found.close()


@pytest.mark.parametrize(
    ("minutes", "points", "width_us"),
    [
        (1, 1000, 0),
        (1, 200, 300_000),
        (10, 1000, SECOND),
        (60, 2000, 2 * SECOND),
        (60, 100, 40 * SECOND),
        (300, 1000, 20 * SECOND),
    ],
)
def test_a_view_gets_the_finest_level_that_fits_its_points(
    written: Written, minutes: int, points: int, width_us: int
) -> None:
    # GIVEN a history that is longer than the view
    written.add(BASE_US, 2 * minutes * 60)

    # WHEN the view is asked for
    from_us = BASE_US + minutes * MINUTE
    found = written.timeline(points, from_us, from_us + minutes * MINUTE)

    # THEN it has about as many points as asked, and loses no extreme: each low and high is one of the samples'
    assert found.resolution_us == width_us
    assert points / 4 < len(found.time_unix_us) <= points + 2
    low, high = found.low["active_bytes"], found.high["active_bytes"]
    assert low[0] <= from_us + SECOND // 10
    assert high[-1] >= from_us + minutes * MINUTE - (width_us or SECOND // 10)
    assert (np.diff(found.time_unix_us) > 0).all()


def test_the_whole_history_begins_with_its_first_sample(written: Written) -> None:
    written.add(BASE_US + 12_345_678, 30)

    found = written.timeline(1000)

    assert (found.first_unix_us, found.resolution_us) == (BASE_US + 12_345_678, 0)
    assert found.low["active_bytes"].tolist() == found.time_unix_us.tolist()
    assert found.last_unix_us == found.time_unix_us[-1]


def test_where_samples_have_gone_the_next_level_answers(written: Written) -> None:
    # GIVEN an hour of history, of which only the last quarter has its samples
    written.add(BASE_US, 3600)
    written.prune(BASE_US + HOUR)

    # WHEN a minute from before is asked for THEN it comes as points of one second
    found = written.timeline(1000, BASE_US + 10 * MINUTE, BASE_US + 11 * MINUTE)
    assert found.resolution_us == SECOND
    assert 60 <= len(found.time_unix_us) <= 61
    # AND the whole still begins at its first second
    assert written.timeline(1000).first_unix_us == BASE_US


def test_a_pause_is_one_point_without_values(written: Written) -> None:
    # GIVEN ten seconds, a pause of a minute, ten seconds
    written.add(BASE_US, 10)
    written.add(BASE_US + 70 * SECOND, 10)

    # THEN there is one point between them that is NaN in every figure
    found = written.timeline(1000)
    unknown = np.flatnonzero(np.isnan(found.low["active_bytes"]))
    assert len(unknown) == 1
    assert all(np.isnan(found.high[name][unknown[0]]) for name in found.high)
    assert BASE_US + 10 * SECOND < found.time_unix_us[unknown[0]] < BASE_US + 70 * SECOND


def test_a_slow_agent_has_no_gaps(written: Written) -> None:
    written.add(BASE_US, 60, hz=1)

    assert not np.isnan(written.timeline(1000).low["active_bytes"]).any()


@pytest.mark.parametrize("points", [1000, 100])
def test_an_agent_that_slows_down_has_no_gaps(written: Written, points: int) -> None:
    # GIVEN a minute of ten samples a second, then ten seconds of one a second, as where its budget is spent
    written.add(BASE_US, 60)
    written.add(BASE_US + 60 * SECOND, 10, hz=1)

    assert not np.isnan(written.timeline(points).low["active_bytes"]).any()


def test_a_range_without_history_is_empty(written: Written) -> None:
    written.add(BASE_US, 10)

    found = written.timeline(1000, BASE_US + HOUR, BASE_US + 2 * HOUR)

    assert len(found.time_unix_us) == 0
    assert found.first_unix_us == BASE_US


def test_too_many_marks_lose_steps_first(written: Written) -> None:
    # GIVEN a thousand steps and a hundred others in one minute
    marks = [Mark(BASE_US + i * 50_000, 0, "step", str(i)) for i in range(1000)]
    marks += [Mark(BASE_US + i * 500_000, 0, "retry", "", 0) for i in range(100)]
    written.add(BASE_US, 60, marks=marks)

    # THEN all others are shown, and steps fill what is left, evenly
    found = written.timeline(100)
    kinds = [mark.kind for mark in found.marks]
    assert (kinds.count("retry"), kinds.count("step"), found.marks_left_out) == (100, 400, 600)
    steps = [int(mark.label) for mark in found.marks if mark.kind == "step"]
    assert max(np.diff(steps)) <= 3
    assert [mark.time_unix_us for mark in found.marks] == sorted(mark.time_unix_us for mark in found.marks)


def test_marks_of_another_device_are_not_shown(written: Written) -> None:
    marks = [Mark(BASE_US + device, 0, "oom", "", device) for device in (0, 1)] + [Mark(BASE_US + 5, 0, "user", "all")]
    written.add(BASE_US, 10, marks=marks)

    assert [mark.device for mark in written.timeline(100).marks] == [0, None]


def test_a_mark_outside_the_range_is_not_shown(written: Written) -> None:
    written.add(BASE_US, 10, marks=[Mark(BASE_US + second * SECOND, 0, "user", str(second)) for second in (1, 5, 9)])

    assert [mark.label for mark in written.timeline(100, BASE_US + 4 * SECOND, BASE_US + 6 * SECOND).marks] == ["5"]
