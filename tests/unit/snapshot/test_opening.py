"""Opening a file: progress, cancelling, and the second time."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.segments import segment
from tests.unit.snapshot.trees import event, frame, small_tree, tree, write
from vramscope.errors import BadInputError
from vramscope.snapshot.cache import SnapshotCache, cache_folder
from vramscope.snapshot.columns import Snapshot
from vramscope.snapshot.opening import OpeningCancelled, Progress
from vramscope.trace.moment import moment_at
from vramscope.trace.opening import open_traced
from vramscope.units import MIB

MANY = 1 << 40


@pytest.fixture
def cache(tmp_path: Path) -> SnapshotCache:
    return SnapshotCache(cache_folder(tmp_path / "state"), MANY)


def long_tree(events: int = 20_000) -> dict[str, object]:
    stack = [frame("forward")]
    return tree(segment((MIB, "live")), traces=[[event("snapshot", size=n, frames=stack) for n in range(events)]])


def stages(path: Path, cache: SnapshotCache) -> list[str]:
    """Return the stages that opening ``path`` goes through."""
    seen: list[Progress] = []
    open_traced(path, cache=cache, progress=seen.append)
    assert all(0 <= progress.done <= progress.total for progress in seen)
    return list(dict.fromkeys(progress.stage for progress in seen))


def assert_same(first: Snapshot, second: Snapshot) -> None:
    for one, other in zip(first.devices, second.devices, strict=True):
        assert np.array_equal(one.events.size_bytes, other.events.size_bytes)
        assert np.array_equal(one.state.block_address, other.state.block_address)
        assert [first.frames(code) for code in one.events.stack] == [second.frames(code) for code in other.events.stack]
    assert (first.settings, first.ignored, first.notes) == (second.settings, second.ignored, second.notes)


def test_the_second_opening_reads_no_pickle(cache: SnapshotCache, tmp_path: Path) -> None:
    path = write(tmp_path, long_tree())
    assert stages(path, cache) == ["looking", "reading", "building"]
    assert stages(path, cache) == ["looking"]
    assert_same(open_traced(path).snapshot, open_traced(path, cache=cache).snapshot)


def test_a_changed_file_is_read_again_even_with_its_size_and_time_kept(cache: SnapshotCache, tmp_path: Path) -> None:
    # GIVEN a file that was opened
    path = write(tmp_path, small_tree())
    before = path.stat()
    open_traced(path, cache=cache)

    # WHEN one byte of it changes
    content = path.read_bytes()
    path.write_bytes(content.replace(b"backward", b"backwarp"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    # THEN
    found = open_traced(path, cache=cache).snapshot
    assert found.frames(int(found.devices[0].events.stack[2])) == [("train.py", 8, "backwarp")]


def test_the_same_content_under_another_name_is_known(cache: SnapshotCache, tmp_path: Path) -> None:
    open_traced(write(tmp_path, small_tree()), cache=cache)
    assert stages(write(tmp_path, small_tree(), "copy.pickle"), cache) == ["looking"]


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[:-64], lambda raw: b"X" + raw[1:], lambda raw: raw[:16] + b"?" + raw[17:], lambda _: b""],
    ids=["end", "magic", "header", "everything"],
)
def test_a_damaged_entry_is_read_anew(damage: Callable[[bytes], bytes], cache: SnapshotCache, tmp_path: Path) -> None:
    # GIVEN an entry that lost its end, its head or a byte of its header
    path = write(tmp_path, small_tree())
    open_traced(path, cache=cache)
    (entry,) = (tmp_path / "state" / "parsed").glob("*.columns")
    entry.write_bytes(damage(entry.read_bytes()))

    # THEN
    assert "reading" in stages(path, cache)
    assert stages(path, cache) == ["looking"]


def test_the_least_used_entry_goes_first(tmp_path: Path) -> None:
    # GIVEN room for two entries
    paths = [write(tmp_path, long_tree(1000 + n), f"{n}.pickle") for n in range(3)]
    open_traced(paths[0], cache=SnapshotCache(tmp_path / "one", MANY))
    (entry,) = (tmp_path / "one").glob("*.columns")
    cache = SnapshotCache(tmp_path / "two", int(entry.stat().st_size * 2.5))

    # WHEN the first is used again before a third comes
    folder = tmp_path / "two"
    for path in paths[:2]:
        open_traced(path, cache=cache)
    for age_s, used in enumerate(sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)):
        os.utime(used, (1000 + age_s, 1000 + age_s))
    open_traced(paths[0], cache=cache)
    open_traced(paths[2], cache=cache)

    # THEN the second is gone
    assert [stages(path, cache) for path in (paths[0], paths[2])] == [["looking"], ["looking"]]
    assert "reading" in stages(paths[1], cache)


def test_the_cache_is_private_and_holds_no_half_done_file(cache: SnapshotCache, tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        open_traced(write(tmp_path, b"nothing"), cache=cache)
    folder = tmp_path / "state" / "parsed"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    with pytest.raises(BadInputError, match="open to others"):
        SnapshotCache(folder, MANY)


@pytest.mark.parametrize("stage", ["looking", "reading", "building"])
def test_cancelling_stops_at_once_and_leaves_nothing(stage: str, cache: SnapshotCache, tmp_path: Path) -> None:
    # GIVEN
    seen: list[str] = []
    path = write(tmp_path, long_tree())

    # WHEN
    with pytest.raises(OpeningCancelled):
        open_traced(path, cache=cache, progress=lambda now: seen.append(now.stage), cancelled=lambda: stage in seen)

    # THEN
    assert seen[-1] == stage
    assert list((tmp_path / "state" / "parsed").iterdir()) == []


def test_an_exception_of_the_caller_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a caller that is interrupted
    children: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        children.append(start(*arguments, **options))
        return children[-1]

    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", started)

    # WHEN
    with pytest.raises(KeyboardInterrupt):
        open_traced(write(tmp_path, long_tree()), progress=interrupt)

    # THEN
    (child,) = children
    assert child.poll() is not None


def test_a_file_opens_where_the_cache_has_gone(cache: SnapshotCache, tmp_path: Path) -> None:
    # GIVEN a cache whose folder cannot be written to any more
    shutil.rmtree(cache_folder(tmp_path / "state"))
    # THEN it is read each time
    path = write(tmp_path, small_tree())
    for _ in range(2):
        assert "reading" in stages(path, cache)


def test_segments_that_overlap_are_a_contradiction_and_no_total_to_trust(tmp_path: Path) -> None:
    # GIVEN two segments, each filled by its blocks, of which the second begins within the first
    one, other = segment((2 * MIB, "live")), segment((2 * MIB, "live"))
    other["address"] += MIB
    other["blocks"][0]["address"] += MIB

    # WHEN, THEN
    found = open_traced(write(tmp_path, tree(one, other)))
    assert found.snapshot.devices[0].contradiction == "the file's segments overlap"
    with pytest.raises(BadInputError, match="overlap"):
        moment_at(found.traces[0], -1)
