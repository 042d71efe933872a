"""Rollups equal what brute force finds, however the samples were cut into flushes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.rollup import LEVELS_US, METRIC_COUNT, Points, Rollup, by_span, join, roll_up, with_gaps

SECOND = 1_000_000


def samples(time_us: list[int], values: list[float]) -> Points:
    table = np.repeat(np.array(values, float)[:, None], METRIC_COUNT, axis=1)
    return Points(np.array(time_us, np.int64), table, table)


@st.composite
def histories(draw: st.DrawFn) -> list[Points]:
    """Return samples in ascending time, cut into flushes."""
    steps = draw(st.lists(st.integers(1, 8 * SECOND), min_size=1, max_size=60))
    values = draw(
        st.lists(st.one_of(st.just(math.nan), st.integers(0, 1 << 40)), min_size=len(steps), max_size=len(steps))
    )
    time_us = np.cumsum(steps).tolist()
    cuts = sorted(draw(st.sets(st.integers(1, len(steps)), max_size=6)) | {0, len(steps)})
    return [samples(time_us[a:b], values[a:b]) for a, b in itertools.pairwise(cuts)]


@settings(deadline=None)
@given(flushes=histories())
def test_rollups_equal_brute_force(flushes: list[Points]) -> None:
    # GIVEN samples that arrive flush by flush
    rollup = Rollup()
    stored: dict[int, dict[int, tuple[float, float]]] = {level_us: {} for level_us in LEVELS_US}

    # WHEN each flush replaces the points that it changed
    for flush in flushes:
        for level_us, points in rollup.add(flush):
            for time_us, low, high in zip(points.time_unix_us.tolist(), points.low, points.high, strict=True):
                stored[level_us][time_us] = (float(low[0]), float(high[0]))

    # THEN what is stored is what the whole history has in each stretch
    whole = join(flushes)
    for level_us, found in stored.items():
        starts = {time_us // level_us * level_us for time_us in whole.time_unix_us.tolist()}
        assert set(found) == starts
        for start in starts:
            inside = (whole.time_unix_us >= start) & (whole.time_unix_us < start + level_us)
            known = [value for value in whole.low[inside, 0].tolist() if not math.isnan(value)]
            expected = (min(known), max(known)) if known else (math.nan, math.nan)
            assert found[start] == pytest.approx(expected, nan_ok=True, rel=0)


def test_a_rollup_goes_on_where_an_earlier_one_stopped() -> None:
    before = Rollup()
    points = dict(before.add(samples([1, 2], [5, 9])))

    after = Rollup(points)
    (_level, found), *_rest = after.add(samples([3], [7]))

    assert (found.low[0, 0], found.high[0, 0]) == (5, 9)


def test_an_unknown_value_stays_unknown() -> None:
    found = roll_up(samples([1, 2], [math.nan, math.nan]), SECOND)

    assert np.isnan(found.low).all()


def test_samples_are_cut_at_whole_seconds() -> None:
    parts = by_span(samples([999_998, 999_999, 1_000_000, 3_000_000], [1, 2, 3, 4]), SECOND)

    assert [part.time_unix_us.tolist() for part in parts] == [[999_998, 999_999], [1_000_000], [3_000_000]]
    assert [part.low[:, 0].tolist() for part in parts] == [[1, 2], [3], [4]]


def test_a_stretch_of_over_three_spacings_is_a_gap() -> None:
    # GIVEN points ten apart, once thirty and once forty
    found = with_gaps(samples([0, 10, 40, 80], [1, 2, 3, 4]), 10)

    # THEN only the forty have a point without values in their middle
    assert found.time_unix_us.tolist() == [0, 10, 40, 60, 80]
    assert np.isnan(found.low[:, 0]).tolist() == [False, False, False, True, False]
    assert np.isnan(found.high[:, 0]).tolist() == [False, False, False, True, False]
