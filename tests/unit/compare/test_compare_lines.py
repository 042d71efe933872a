"""Two timelines on one axis: aligned where it is wished, with at most 2,000 points a line, and the highest moment in them."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.figures.compare_lines import Line, figure, note
from tests.unit.compare.jobs import LOOP, content_of, traced
from vramscope.trace.timeline_view import timeline_of
from vramscope.units import MIB


def line(letter: str, *times_us: int | None, event: int | None = None) -> Line:
    """A job that makes 4 MiB, then 600, and drops these; its events have the given times, or none."""
    content = content_of((4 * MIB, LOOP), (600 * MIB, LOOP), 1)
    for entry, time_us in zip(content["device_traces"][0], times_us, strict=True):
        if time_us is None:
            del entry["time_us"]
        else:
            entry["time_us"] = time_us
    trace = traced(content).traces[0]
    return Line(letter, timeline_of(trace), trace.event_count - 1 if event is None else event)


A = (1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000)
B = (10_000_000, 11_000_000, 11_500_000, 17_000_000, 18_000_000, 20_000_000)


def starts(found: dict[str, Any]) -> dict[str, float]:
    return {trace["name"]: trace["x"][0] for trace in found["data"]}


@pytest.mark.parametrize(("align", "a_start", "b_start"), [("start", 0, 0), ("peak", -3, -7), ("moment", -5, -10)])
def test_both_are_aligned_where_it_is_wished(align: str, a_start: float, b_start: float) -> None:
    found = figure([line("A", *A), line("B", *B)], align)
    assert set(starts(found)) == {"A active", "A reserved", "B active", "B reserved"}
    for name, start in starts(found).items():
        # The axis begins just before the first event.
        assert start == pytest.approx(a_start if name.startswith("A") else b_start, abs=1e-3)
    assert "seconds from" in found["layout"]["xaxis"]["title"]["text"]


def test_the_peak_is_in_the_line_and_a_line_is_short() -> None:
    found = figure([line("A", *A), line("B", *B)], "start")
    for trace in found["data"]:
        assert len(trace["x"]) == len(trace["y"]) <= 2000
    active = next(trace for trace in found["data"] if trace["name"] == "A active")
    assert max(active["y"]) == 604
    assert found["layout"]["yaxis"]["ticksuffix"] == " MiB"


def test_where_one_has_no_times_both_are_drawn_over_events() -> None:
    found = figure([line("A", *A), line("B", *[None] * 6)], "start")
    assert "events from" in found["layout"]["xaxis"]["title"]["text"]


def test_a_side_without_a_trace_is_said_and_the_other_is_drawn() -> None:
    lines = [line("A", *A), Line("B", None, -1)]
    assert set(starts(figure(lines, "peak"))) == {"A active", "A reserved"}
    assert note(lines) == "B: no allocations were recorded, so there is no line"
    assert figure([Line("A", None, -1), Line("B", None, -1)], "moment")["data"] == []
