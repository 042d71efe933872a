"""The Compare page without a browser: its ids, what its pickers say as files open, and its tables."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dash.development.base_component import Component

from dashboard import compare_ids, ids
from dashboard.callbacks.compare import pickers
from dashboard.files import SnapshotFiles
from layouts import compare
from tests.fake_live_data import FakeLiveData
from tests.unit.compare.jobs import FORWARD, LOOP, STEP, content_of, job, traced
from vramscope.compare.difference import difference
from vramscope.compare.side import side_of
from vramscope.units import MIB

NOTHING_PICKED = {
    **{f"{name}_{side}": None for name in ("file", "device", "moment", "event") for side in "ab"},
    **{"align": "start", "ignore_lines": [], "swaps": None},
}


def parts_of(component: Any) -> Iterator[Component]:
    if isinstance(component, (list, tuple)):
        for child in component:
            yield from parts_of(child)
    if isinstance(component, Component):
        yield component
        yield from parts_of(getattr(component, "children", None))


def words(component: Any) -> str:
    if isinstance(component, (list, tuple)):
        return " ".join(map(words, component))
    return words(getattr(component, "children", "")) if isinstance(component, Component) else str(component or "")


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SnapshotFiles]:
    found = SnapshotFiles(tmp_path / "state", FakeLiveData(no_jobs=True), dumps_folder=tmp_path)
    yield found
    found.close()


def add(files: SnapshotFiles, folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_bytes(pickle.dumps(content))
    return files.add_path(path)


def when_open(files: SnapshotFiles, search: str) -> dict[str, Any]:
    """Return what the pickers hold once the files of ``search`` have been opened, or have failed."""
    found = pickers(files, search, NOTHING_PICKED, None)
    shown = NOTHING_PICKED | {f"file_{side}": found[f"file_{side}.value"] for side in "ab"}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all(files.state(row["value"]).state in ("open", "failed") for row in found["file_a.options"]):
            return pickers(files, search, shown, None)
        time.sleep(0.02)
    raise AssertionError(f"not opened in time: {search}")


def test_every_id_is_in_the_layout_exactly_once() -> None:
    own = {value for name, value in vars(compare_ids).items() if name.isupper() and isinstance(value, str)}
    per_side = (compare_ids.file, compare_ids.device, compare_ids.moment, compare_ids.event, compare_ids.status)
    own |= {name(side) for side in compare_ids.SIDES for name in (*per_side, compare_ids.event_label)}
    used = [part.id for part in parts_of(compare.layout("/")) if getattr(part, "id", None)]
    assert sorted(used) == sorted(own | {ids.THEME})


def test_a_link_opens_its_files_and_shows_its_moments(files: SnapshotFiles, tmp_path: Path) -> None:
    # GIVEN
    a = add(files, tmp_path, "a.pickle", content_of((4 * MIB, LOOP), (600 * MIB, FORWARD), 1))
    b = add(files, tmp_path, "b.pickle", content_of((4 * MIB, LOOP)))

    # WHEN
    found = when_open(files, f"?a={a}&a_at=peak&b={b}&b_at=1&align=peak")

    # THEN
    assert {row["label"] for row in found["file_a.options"]} == {"a.pickle", "b.pickle"}
    assert (found["file_a.value"], found["device_a.value"], found["moment_a.value"]) == (a, 0, "peak")
    assert (found["moment_b.value"], found["event_b.value"], found["event_b.class"]) == ("event", 1, "event")
    assert found["selection"]["ready"]
    assert found["url"] == f"?a={a}&a_gpu=0&a_at=peak&b={b}&b_gpu=0&b_at=1&align=peak"


def test_a_file_that_cannot_be_opened_is_said_where_it_was_picked(files: SnapshotFiles, tmp_path: Path) -> None:
    a = add(files, tmp_path, "a.pickle", content_of((4 * MIB, LOOP)))
    b = add(files, tmp_path, "b.pickle", {"epoch": 3})
    found = when_open(files, f"?a={a}&b={b}")
    assert found["status_a"] == ""
    assert "b.pickle" in found["status_b"]
    assert "\n" not in found["status_b"]
    assert not found["selection"]["ready"]


def test_an_unknown_file_is_one_line_and_no_path_can_be_named(files: SnapshotFiles) -> None:
    found = pickers(files, "?a=/etc/passwd", NOTHING_PICKED, None)
    assert "no file /etc/passwd is known here" in found["status_a"]
    assert found["device_a.options"] == []


def test_the_tables_say_what_differs_and_unfold_stacks() -> None:
    a, b = job((40 * MIB, FORWARD)), job((40 * MIB, FORWARD), (24 * MIB, STEP))
    found = difference(side_of(a, name="a"), side_of(b, name="b"))
    tables = compare.tables(found)
    assert "+24.0 MiB in all" in words(tables[1])
    assert "only in B" in words(tables[1])
    assert "step (/home/ada/train.py:60)" in words(tables[1])
    stacks = [words(part) for part in parts_of(tables[3]) if type(part).__name__ == "Pre"]
    assert any("_init_group" in text and "main (/home/ada/train.py:90)" in text for text in stacks)


def test_a_total_that_is_not_known_is_a_dash() -> None:
    content = content_of((4 * MIB, LOOP))
    content["device_traces"] = [[]]
    found = difference(side_of(traced(content), name="a"), side_of(job((4 * MIB, LOOP)), name="b"))
    (peak,) = (card for card in compare.totals(found) if "peak active" in words(card))
    assert "– → 4.00 MiB" in words(peak)
