"""What the Compare page compares: its URL, its pickers, and what they offer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.figures import compared
from dashboard.figures.compared import Choice, Selection
from tests.unit.compare.jobs import FORWARD, LOOP, content_of, job, traced
from vramscope.units import MIB

moments = st.one_of(st.sampled_from(compared.NAMED), st.integers(0, 10**6).map(str))
choices = st.builds(
    Choice, st.none() | st.text("0123456789abcdef", min_size=16, max_size=16), st.none() | st.integers(0, 99), moments
)
selections = st.builds(Selection, choices, choices, st.sampled_from(["start", "peak", "moment"]), st.booleans())


def values(selection: Selection, **changes: Any) -> dict[str, Any]:
    """Return what the pickers hold while ``selection`` is shown, with some of them changed."""
    held: dict[str, Any] = {"align": selection.align, "ignore_lines": [], "swaps": selection.swaps}
    for side, choice in (("a", selection.a), ("b", selection.b)):
        is_event = choice.at not in compared.NAMED
        held |= {f"file_{side}": choice.file, f"device_{side}": choice.device}
        held |= {f"moment_{side}": "event" if is_event else choice.at}
        held |= {f"event_{side}": int(choice.at) if is_event else None}
    return held | changes


SHOWN = Selection(Choice("f1", 0, "peak"), Choice("f2", 1, "7"))


@settings(deadline=None)
@given(selection=selections)
def test_a_link_shows_the_same_again(selection: Selection) -> None:
    assert compared.from_search(compared.to_search(selection)) == selection


@pytest.mark.parametrize(
    "search", [None, "", "?", "?a_gpu=x&a_at=noon&align=up&lines=x", "?a_gpu=-1&b_at=-3&b_at=٣", "?a_gpu=" + "9" * 40]
)
def test_what_cannot_be_read_in_a_link_is_left_open(search: str | None) -> None:
    assert compared.from_search(search) == Selection()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, SHOWN),
        ({"file_a": "f3"}, Selection(Choice("f3"), SHOWN.b)),
        ({"device_a": 2}, Selection(Choice("f1", 2, "peak"), SHOWN.b)),
        # Another device has other events.
        ({"device_b": 0}, Selection(SHOWN.a, Choice("f2", 0, "end"))),
        ({"moment_a": "oom"}, Selection(Choice("f1", 0, "oom"), SHOWN.b)),
        # An event's number begins at the moment that is shown.
        ({"moment_a": "event"}, Selection(Choice("f1", 0, "40"), SHOWN.b)),
        ({"event_b": 9}, Selection(SHOWN.a, Choice("f2", 1, "9"))),
        ({"event_b": None}, SHOWN),
        ({"event_b": -4}, Selection(SHOWN.a, Choice("f2", 1, "end"))),
        ({"moment_b": "end"}, Selection(SHOWN.a, Choice("f2", 1, "end"))),
        ({"align": "peak", "ignore_lines": ["yes"]}, Selection(SHOWN.a, SHOWN.b, "peak", True)),
        ({"align": "noon"}, SHOWN),
        ({"swaps": 1}, Selection(SHOWN.b, SHOWN.a, swaps=1)),
    ],
)
def test_a_pick_changes_what_it_is_about(changes: dict[str, Any], expected: Selection) -> None:
    assert compared.picked(SHOWN, values(SHOWN, **changes), events=[40, 7]) == expected


def test_what_a_file_does_not_have_gives_way_to_what_it_has() -> None:
    found = job((4 * MIB, LOOP))
    assert compared.resolved(Choice("f", 5, "peak"), found) == Choice("f", 0, "peak")
    assert compared.resolved(Choice("f", None, "oom"), found) == Choice("f", 0, "end")
    assert compared.resolved(Choice("f", 0, "99"), found) == Choice("f", 0, "end")


def test_moments_are_offered_as_far_as_the_trace_tells_them() -> None:
    # GIVEN a trace, and none
    content = content_of((4 * MIB, LOOP), (8 * MIB, FORWARD))
    with_trace = traced(content).traces[0]
    content["device_traces"] = [[]]
    without = traced(content).traces[0]

    # THEN
    assert [value for value, _ in compared.moments(with_trace)] == ["end", "peak", "event"]
    assert [value for value, _ in compared.moments(without)] == ["end"]
