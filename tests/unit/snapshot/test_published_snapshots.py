"""Real snapshots that people published read as the index beside them says; skipped where they do not lie beside the checkout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from vramscope.errors import BadInputError
from vramscope.snapshot.summary import summarize_snapshot
from vramscope.trace.opening import open_traced

FOLDER = Path(__file__).parents[4] / "shared" / "cases" / "snapshots"
TOTALS = ("reserved_bytes", "allocated_bytes", "active_bytes")


class Row(NamedTuple):
    name: str
    segments: int
    blocks: int
    events: list[int]
    totals: list[int]


def rows() -> list[Row]:
    """Return the index's rows of the files with figures."""
    if not (FOLDER / "INDEX.md").exists():
        return []
    found = []
    for line in (FOLDER / "INDEX.md").read_text().splitlines():
        if re.match(r"\| \d\d-.*\.pickle ", line):
            name, _, counts, events, *totals = [cell.strip() for cell in line.strip("|").split("|")][:7]
            segments, blocks = (int(count) if count.isdigit() else 0 for count in counts.split("/"))
            numbers = [int(total) if total.isdigit() else 0 for total in totals]
            found.append(Row(name, segments, blocks, [int(n) for n in re.findall(r"\d+", events)], numbers))
    return found


ROWS = rows()
needs_cases = pytest.mark.skipif(not ROWS, reason="the published snapshots do not lie beside this checkout")


def figures(name: str) -> dict[str, Any]:
    return summarize_snapshot(open_traced(FOLDER / name))


def device(found: dict[str, Any], number: int = 0) -> dict[str, Any]:
    return next(device for device in found["devices"] if device["device"] == number)


@needs_cases
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name[:30])
def test_a_published_snapshot_has_the_figures_of_its_index(row: Row) -> None:
    devices = figures(row.name)["devices"]
    assert sum(device["segments"] for device in devices) == row.segments
    assert sum(device["blocks"] for device in devices) == row.blocks
    assert [sum(device[key] for device in devices) for key in TOTALS] == row.totals
    if row.events:
        assert [device["events"] for device in devices] == row.events


@needs_cases
def test_an_oom_on_one_of_three_gpus() -> None:
    found = figures("01-three-gpus-expandable-oom-on-device-1.pickle")
    (oom,) = device(found, 1)["oom"]
    assert oom["event"] == 421
    assert oom["device_free_bytes"] == 95_682_560
    assert device(found, 0)["oom"] == device(found, 2)["oom"] == []
    assert found["torch_version_guess"] == "2.8 or 2.9"
    # All of it expandable, so that every block is its request rounded up.
    assert device(found, 1)["peak_active_bytes"] - device(found, 1)["peak_requested_bytes"] < 10_000


@needs_cases
def test_a_peak_counts_the_blocks_from_before_the_trace() -> None:
    found = figures("10-1722-segments-trace-starts-mid-run.pickle")
    assert device(found)["peak_requested_bytes"] >= device(found)["requested_bytes"] == 43_727_739_906
    assert any("mid-run" in line for line in found["missing"])


@needs_cases
def test_a_file_that_contradicts_itself_is_told_from_the_others() -> None:
    contradicting = [
        row.name for row in ROWS if any("blocks do not fill" in line for line in figures(row.name)["missing"])
    ]
    assert contradicting == ["08-synthetic-broken-invariants.pickle"]


@needs_cases
def test_without_history_there_are_no_peaks_and_it_is_said() -> None:
    for name in ("05-6633-blocks-no-trace.pickle", "09-private-pools-pending-free.pickle", "23-no-history.pickle"):
        found = figures(name)
        assert device(found)["peak_requested_bytes"] is device(found)["peak_active_bytes"] is None
        assert any("no allocations were recorded" in line for line in found["missing"])


@needs_cases
def test_what_was_made_from_one_of_them_reads_like_it() -> None:
    expected = figures("22-adam-35-events.pickle")
    for way in ("protocol2", "protocol5", "trailing_zeros"):
        assert figures(f"derived-adam.{way}.pickle")["devices"] == expected["devices"]


@needs_cases
@pytest.mark.parametrize(
    ("name", "says"),
    [("derived-adam.cut_in_half.pickle", "cut off or damaged"), ("not-a-snapshot.pickle", "not a memory snapshot")],
)
def test_what_is_broken_is_one_line(name: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        open_traced(FOLDER / name)
