"""The picture over time: each column shows its highest moment, and layers with the rest are what was in use, to the byte."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.compare.jobs import FORWARD, LOOP, Call, content_of, job, traced
from vramscope.report.samples import Samples, layers_of, samples_of
from vramscope.report.timeline import tick_bytes, timeline
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.timeline_view import Timeline, timeline_of
from vramscope.units import GIB, KIB, MIB

programs = st.lists(st.tuples(st.integers(1, 30 * MIB), st.booleans()), min_size=1, max_size=30)


def run(program: list[tuple[int, bool]]) -> Timeline:
    calls: list[Call] = []
    for size, is_freed in program:
        calls.append((size, LOOP))
        if is_freed:
            calls.append(sum(not isinstance(call, int) for call in calls) - 1)
    return timeline_over(job(*calls))


def timeline_over(found: TracedSnapshot) -> Timeline:
    timeline = timeline_of(found.traces[0])
    assert timeline is not None
    return timeline


def sampled(found: Timeline, columns: int) -> Samples:
    return samples_of(found, found.axes["time"], columns)


@settings(deadline=None)
@given(program=programs, columns=st.integers(1, 40), most=st.integers(1, 10))
def test_layers_are_what_was_in_use_or_a_part_of_it(program: list[tuple[int, bool]], columns: int, most: int) -> None:
    # GIVEN
    found = run(program)
    samples = sampled(found, columns)

    # WHEN
    layers = layers_of(found, samples, most)

    # THEN each layer lies on those before it, and together they are at most what was in use
    column = np.arange(columns)
    held = np.where((layers.first[:, None] <= column) & (column < layers.end[:, None]), layers.size_bytes[:, None], 0)
    assert np.array_equal(layers.base_bytes, np.cumsum(held, axis=0) - held)
    rest = samples.in_use_bytes - held.sum(axis=0)
    assert (rest >= 0).all()
    if most >= len(found.trace.allocations):
        assert not rest.any()


@settings(deadline=None)
@given(program=programs, columns=st.integers(1, 40))
def test_the_peak_is_in_the_picture_however_few_columns_it_has(program: list[tuple[int, bool]], columns: int) -> None:
    found = run(program)
    assert sampled(found, columns).in_use_bytes.max() == found.level.max()


def test_a_clock_that_was_set_back_stands_still() -> None:
    # GIVEN
    content = content_of((4 * MIB, LOOP), (4 * MIB, LOOP), (4 * MIB, LOOP))
    for event, time_us in zip(content["device_traces"][0], (50, 60, 10, 80), strict=True):
        event["time_us"] = time_us
    samples = sampled(timeline_over(traced(content)), 8)
    assert list(samples.axis.position) == [50, 60, 60, 80]
    assert (np.diff(samples.event) >= 0).all()


def test_the_picture_has_layers_marks_and_the_reserved_line() -> None:
    found = timeline_over(job((40 * MIB, FORWARD), (200 * MIB, LOOP), 1))
    marks = [(3, "peak 240 MiB", "peak")]
    picture = timeline(found, owner=lambda stack: 5, describe=lambda stack: "<b>", marks=marks)
    assert picture.count("owner-5") == 2
    assert "200.0 MiB, &lt;b&gt;" in picture
    assert 'class="reserved"' in picture
    assert ">peak 240 MiB</text>" in picture
    assert re.findall(r">(\d+ MiB)</text>", picture)[:2] == ["64 MiB", "128 MiB"]


@pytest.mark.parametrize(("highest", "step"), [(0, KIB), (5 * KIB, KIB), (5 * KIB + 1, 2 * KIB), (80 * GIB, 16 * GIB)])
def test_ticks_are_powers_of_two(highest: int, step: int) -> None:
    assert tick_bytes(highest) == step
