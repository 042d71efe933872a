"""The timeline's figure: lines, gaps, the axis, and the places of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dashboard.figures.timeline import Window, escape, figure, nice_top, place_labels, runs
from vramscope.records import HISTORY, Mark, Timeline
from vramscope.units import GIB, MIB

START_US = 1_790_000_000_000_000


def history(
    seconds: int = 60, *, marks: tuple[Mark, ...] = (), resolution_us: int = 1_000_000, **lines: Any
) -> Timeline:
    """Return a minute of samples, one a second; ``lines`` gives the values of some names, the others are unknown."""
    moments = START_US + np.arange(seconds, dtype=np.int64) * 1_000_000
    high = {name: np.full(seconds, np.nan) for name in HISTORY}
    for name, values in lines.items():
        high[name] = np.broadcast_to(np.asarray(values, float), seconds).copy()
    low = {name: values * 0.9 for name, values in high.items()}
    first, last = (int(moments[0]), int(moments[-1])) if seconds else (None, None)
    return Timeline(moments, low, high, resolution_us, marks, 0, first, last)


def window(seconds: int = 60) -> Window:
    return Window(START_US + seconds * 1_000_000, seconds)


def drawn(found: Timeline, **changes: Any) -> dict[str, Any]:
    return figure(found, changes.pop("window", window()), width_px=900)


def test_a_window_ends_now_and_a_range_is_kept() -> None:
    assert Window(100_000_000, 60).bounds() == (40_000_000, 100_000_000)
    assert Window(100_000_000, 60, 5, 9).bounds() == (5, 9)
    assert Window(100_000_000).bounds() == (None, None)


def test_a_range_turned_around_still_has_a_width() -> None:
    assert Window(0, None, 9, 5).bounds() == (9, 10)


def test_everything_reaches_from_the_first_sample_to_the_last() -> None:
    found = drawn(history(active_bytes=GIB), window=Window(START_US + 10**12))
    assert found["range_ms"] == [START_US / 1000, START_US / 1000 + 59_000]


def test_lines_that_nobody_measured_are_left_out() -> None:
    found = drawn(history(active_bytes=5 * GIB, reserved_bytes=8 * GIB))
    assert [trace.get("name") for trace in found["data"]] == [None, "reserved", "active"]


def test_the_band_breaks_where_samples_are_missing() -> None:
    # GIVEN ten seconds without a sample
    values = np.full(60, 5.0 * GIB)
    values[20:30] = np.nan
    found = drawn(history(active_bytes=values))
    band, line = found["data"]
    # THEN the band is two closed polygons, and the line keeps its gap
    assert band["x"].count(None) == 2
    assert len(band["x"]) == 2 * 50 + 2
    assert line["connectgaps"] is False
    assert np.isnan(line["y"][25])


def test_runs_are_found_at_both_ends() -> None:
    assert runs(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert runs(np.array([False, False])) == []


def test_the_axis_stays_while_the_lines_move_a_little() -> None:
    tops = {drawn(history(active_bytes=value * GIB))["layout"]["yaxis"]["range"][1] for value in (57, 58, 59, 60)}
    assert len(tops) == 1


@pytest.mark.parametrize("size_bytes", [0, 1, 16 * MIB, 17 * MIB, 3.2 * GIB, 79 * GIB, 1000 * GIB])
def test_the_top_is_above_everything_but_not_far(size_bytes: float) -> None:
    assert size_bytes <= nice_top(size_bytes) <= max(16 * MIB, size_bytes * 1.26)


def test_a_small_job_is_shown_in_mib() -> None:
    assert drawn(history(active_bytes=300 * MIB))["layout"]["yaxis"]["ticksuffix"] == " MiB"
    assert drawn(history(active_bytes=30 * GIB))["layout"]["yaxis"]["ticksuffix"] == " GiB"


def test_marks_become_lines_with_labels_and_steps_become_ticks() -> None:
    marks = (
        Mark(START_US + 10_000_000, 0, "oom", "out of memory"),
        Mark(START_US + 30_000_000, 0, "user", "epoch 3"),
        Mark(START_US + 31_000_000, 0, "step", "1204"),
    )
    found = drawn(history(active_bytes=GIB, marks=marks))
    assert len(found["layout"]["shapes"]) == 2
    assert [label["text"] for label in found["layout"]["annotations"]] == ["out of memory", "epoch 3"]
    assert found["data"][-1]["text"] == ["step 1204"]


def test_marks_outside_the_range_are_not_drawn() -> None:
    found = drawn(history(active_bytes=GIB, marks=(Mark(START_US - 1, 0, "user", "before"),)))
    assert found["layout"]["shapes"] == []


def test_labels_never_overlap_and_the_important_ones_come_first() -> None:
    # GIVEN four labels at about one place
    places = place_labels([100, 101, 102, 300], [50, 50, 50, 50], 900)
    # THEN two get a row each, the third is left out, and the fourth has room again
    assert places == [(0, False), (1, False), None, (0, False)]


def test_a_label_at_the_right_end_stands_left_of_its_mark() -> None:
    assert place_labels([880], [60], 900) == [(0, True)]


def test_labels_that_found_no_room_are_counted() -> None:
    marks = tuple(Mark(START_US + 30_000_000 + n, 0, "retry", f"retry {n}") for n in range(5))
    assert drawn(history(active_bytes=GIB, marks=marks))["note"].endswith("· 3 marks without a label")


def test_hostile_labels_are_text_for_plotly() -> None:
    mark = Mark(START_US + 30_000_000, 0, "user", "<img src=x>")
    found = drawn(history(active_bytes=GIB, marks=(mark,)))
    assert found["layout"]["annotations"][0]["text"] == "&lt;img src=x&gt;"
    assert escape("<a> & b") == "&lt;a&gt; &amp; b"


@pytest.mark.parametrize(
    ("resolution_us", "words"),
    [
        (0, "raw samples"),
        (62_000, "each point: lowest to highest of 62 ms"),
        (10_000_000, "each point: lowest to highest of 10 s"),
    ],
)
def test_the_note_tells_what_a_point_is(resolution_us: int, words: str) -> None:
    assert drawn(history(active_bytes=GIB, resolution_us=resolution_us))["note"] == words


def test_an_empty_history_is_a_figure_that_says_so() -> None:
    found = drawn(history(0), window=window())
    assert found["note"] == "no samples in this range"
