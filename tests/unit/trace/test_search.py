"""The search box: an address, a size, or a part of a stack."""

from __future__ import annotations

import pytest

from tests.segments import BASE
from tests.unit.snapshot.trees import event
from tests.unit.trace.test_tables import content
from tests.unit.trace.views import described
from vramscope.errors import BadInputError
from vramscope.trace.search import search
from vramscope.units import KIB, MIB


@pytest.mark.parametrize(
    ("query", "sizes"),
    [
        # An address within a block finds every allocation that was ever there.
        (f"0x{BASE + MIB + 5:x}", [512 * KIB, 256 * KIB]),
        (str(BASE + MIB + 300 * KIB), [512 * KIB]),
        # The first address behind a block is not in it.
        (f"0x{BASE + MIB + 256 * KIB:x}", [512 * KIB]),
        (f"0x{BASE + 10 * MIB:x}", []),
        # Exactly, as a block or as requested.
        ("512KiB", [512 * KIB]),
        (f"{MIB - 100}B", [MIB]),
        (">=512KiB", [MIB, 512 * KIB]),
        ("> 512 KiB", [MIB]),
        ("<524288", [256 * KIB]),
        ("<= 0.25MiB", [256 * KIB]),
        # More than 64 bits can hold.
        (">999999999999999TiB", []),
        ("<=999999999999999TiB", [MIB, 512 * KIB, 256 * KIB]),
        # A text, whatever its case.
        ("Setup.PY", [MIB]),
        ("linear", [512 * KIB, 256 * KIB]),
        ("no such function", []),
    ],
)
def test_a_query_finds_allocations_largest_first(query: str, sizes: list[int]) -> None:
    found = search(described(content()), query)
    assert [hit["bytes"] for hit in found.hits] == sizes
    assert found.total == len(sizes)


def test_a_hit_says_where_to_jump() -> None:
    hits = search(described(content()), ">=512KiB").hits
    assert [hit["event"] for hit in hits] == [-1, 0]
    assert hits[1]["label"] == f"512.0 KiB at 0x{BASE + MIB:x} at event 0 by train (/home/me/train.py:4)"


def test_a_file_without_lifetimes_is_searched_in_its_final_state() -> None:
    # GIVEN
    broken = content()
    broken["device_traces"][0].append(event("free_completed", 0, MIB))

    # WHEN
    hits = search(described(broken), ">1KiB").hits

    # THEN
    assert [(hit["bytes"], hit["allocation"], hit["event"]) for hit in hits] == [(MIB, None, 4), (256 * KIB, None, 4)]


def test_many_hits_are_cut_and_counted() -> None:
    # GIVEN 300 allocations, one after the other
    many = content()
    for _ in range(300):
        many["device_traces"][0] += [
            event(kind, MIB + 512 * KIB, 1000) for kind in ("alloc", "free_requested", "free_completed")
        ]

    # WHEN
    found = search(described(many), "1000B")

    # THEN
    assert (len(found.hits), found.total) == (200, 300)


@pytest.mark.parametrize("query", ["", "   "])
def test_an_empty_query_says_what_can_be_typed(query: str) -> None:
    with pytest.raises(BadInputError, match="type an address"):
        search(described(content()), query)
