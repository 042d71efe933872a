"""The picture over time: each column shows its highest moment, and layers with the rest are what was in use, to the byte."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.compare.jobs import FORWARD, LOOP, Call, content_of, job, traced
from vramscope.report.samples import Samples, layers_of, samples_of
from vramscope.report.timeline import tick_bytes, timeline
from vramscope.trace.columns import DeviceTrace
from vramscope.units import GIB, KIB, MIB

programs = st.lists(st.tuples(st.integers(1, 30 * MIB), st.booleans()), min_size=1, max_size=30)


def run(program: list[tuple[int, bool]]) -> DeviceTrace:
    calls: list[Call] = []
    for size, is_freed in program:
        calls.append((size, LOOP))
        if is_freed:
            calls.append(sum(not isinstance(call, int) for call in calls) - 1)
    return job(*calls).traces[0]


def sampled(trace: DeviceTrace, columns: int) -> Samples:
    found = samples_of(trace, columns)
    assert found is not None
    return found


@given(program=programs, columns=st.integers(1, 40), most=st.integers(1, 10))
def test_layers_and_the_rest_are_what_was_in_use(program: list[tuple[int, bool]], columns: int, most: int) -> None:
    # GIVEN
    trace = run(program)
    samples = sampled(trace, columns)

    # WHEN
    layers = layers_of(trace, samples, most)

    # THEN each layer lies on those before it, and the rest is never negative
    column = np.arange(columns)
    held = np.where((layers.first[:, None] <= column) & (column < layers.end[:, None]), layers.size_bytes[:, None], 0)
    assert np.array_equal(held.sum(axis=0) + layers.rest_bytes, samples.in_use_bytes)
    assert (layers.rest_bytes >= 0).all()
    assert np.array_equal(layers.base_bytes, np.cumsum(held, axis=0) - held)
    if most >= len(trace.allocations):
        assert not layers.rest_bytes.any()


@given(program=programs, columns=st.integers(1, 40))
def test_the_peak_is_in_the_picture_however_few_columns_it_has(program: list[tuple[int, bool]], columns: int) -> None:
    trace = run(program)
    assert trace.active_bytes is not None
    assert sampled(trace, columns).in_use_bytes.max() == trace.active_bytes.max()


def test_a_clock_that_was_set_back_stands_still() -> None:
    # GIVEN
    content = content_of((4 * MIB, LOOP), (4 * MIB, LOOP), (4 * MIB, LOOP))
    for event, time_us in zip(content["device_traces"][0], (50, 60, 10, 80), strict=True):
        event["time_us"] = time_us
    samples = sampled(traced(content).traces[0], 8)
    assert (samples.start, samples.end) == (50, 80)
    assert (np.diff(samples.event) >= 0).all()


def test_the_picture_has_layers_marks_and_the_reserved_line() -> None:
    trace = job((40 * MIB, FORWARD), (200 * MIB, LOOP), 1).traces[0]
    marks = [(3, "peak 240 MiB", "peak")]
    picture = timeline(trace, owner=lambda stack: 5, describe=lambda stack: "<b>", marks=marks)
    assert picture is not None
    assert picture.count("owner-5") == 2
    assert "200.0 MiB, &lt;b&gt;" in picture
    assert 'class="reserved"' in picture
    assert ">peak 240 MiB</text>" in picture
    assert re.findall(r">(\d+ MiB)</text>", picture)[:2] == ["64 MiB", "128 MiB"]


def test_without_a_trace_there_is_no_picture() -> None:
    content = content_of((4 * MIB, LOOP))
    content["device_traces"] = [[]]
    trace = traced(content).traces[0]
    assert timeline(trace, owner=lambda stack: 0, describe=str, marks=[]) is None


@pytest.mark.parametrize(("highest", "step"), [(0, KIB), (5 * KIB, KIB), (5 * KIB + 1, 2 * KIB), (80 * GIB, 16 * GIB)])
def test_ticks_are_powers_of_two(highest: int, step: int) -> None:
    assert tick_bytes(highest) == step
