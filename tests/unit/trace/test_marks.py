"""The moments of a timeline that have a name."""

from __future__ import annotations

from typing import Any

from tests.unit.snapshot.trees import event, oom
from tests.unit.trace.test_timeline_view import churn
from tests.unit.trace.views import columns
from vramscope.trace.build import trace_of
from vramscope.trace.marks import MOST_MARKS, TraceMark, marks_in
from vramscope.trace.timeline_view import STEP, TIME, timeline_of
from vramscope.units import MIB


def marks(content: dict[str, Any], axis: str, begin: float = -1e18, end: float = 1e18) -> tuple[list[TraceMark], int]:
    snapshot = columns(content)
    found = timeline_of(trace_of(snapshot, snapshot.devices[0]))
    assert found is not None
    return marks_in(snapshot, found, found.axes[axis], begin, end)


def content() -> dict[str, Any]:
    """An allocation at 1,000,005 µs, freed at 1,000,015; then an out-of-memory and a snapshot, in two regions."""
    made = churn([(5, 10)])
    made["device_traces"][0] += [oom(30 * MIB, 0, time_us=1_000_020), event("snapshot", time_us=1_000_030)]
    made["external_annotations"] = [
        {"stage": "START", "name": "ProfilerStep#3", "device": 0, "time_us": 1_000_004},
        {"stage": "START", "name": "load", "device": 0, "time_us": 1_000_010},
        {"stage": "END", "name": "load", "device": 0, "time_us": 1_000_016},
        {"stage": "START", "name": "elsewhere", "device": 1, "time_us": 1_000_016},
    ]
    return made


def test_peak_failures_snapshots_steps_and_regions_are_marked_by_time() -> None:
    found, left_out = marks(content(), TIME)
    assert [(mark.kind, mark.at, mark.until) for mark in found] == [
        ("step", 1_000_004, 1_000_031),
        ("peak", 1_000_005, None),
        ("region", 1_000_010, 1_000_016),
        ("oom", 1_000_020, None),
        ("snapshot", 1_000_030, None),
    ]
    assert found[3].label == "out of memory: 30.0 MiB asked"
    assert left_out == 0


def test_marks_by_step_lie_at_their_events() -> None:
    found, _ = marks(content(), STEP)
    assert [(mark.kind, mark.at, mark.until) for mark in found] == [
        ("step", -1, 4),
        ("peak", 0, None),
        ("region", 0, 2),
        ("oom", 3, None),
        ("snapshot", 4, None),
    ]


def test_a_range_has_the_marks_that_reach_into_it() -> None:
    found, _ = marks(content(), TIME, 1_000_012, 1_000_018)
    assert [mark.label for mark in found] == ["ProfilerStep#3", "load"]


def test_too_many_marks_are_cut_and_the_important_ones_stay() -> None:
    # GIVEN 600 regions before an out-of-memory
    made = content()
    made["external_annotations"] = [
        {"stage": stage, "name": f"region {number}", "device": 0, "time_us": 1_000_006}
        for number in range(600)
        for stage in ("START", "END")
    ]

    # WHEN
    found, left_out = marks(made, TIME)

    # THEN
    assert (len(found), left_out) == (MOST_MARKS, 600 + 3 - MOST_MARKS)
    assert {"peak", "oom", "snapshot"} <= {mark.kind for mark in found}


def test_annotations_of_torch_2_14_carry_their_text() -> None:
    # GIVEN
    made = churn([(5, 10)])
    for entry in made["device_traces"][0]:
        entry["user_metadata"] = ""
    made["device_traces"][0].append(event("annotate", user_metadata="epoch 3", time_us=1_000_020))

    # WHEN
    found, _ = marks(made, STEP)

    # THEN
    assert ("annotation", "epoch 3") in [(mark.kind, mark.label) for mark in found]
