"""``vramscope diff`` as a user runs it."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE
from tests.unit.compare.jobs import FORWARD, LOOP, STEP, content_of
from vramscope.units import MIB


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two jobs: the second has an optimizer, and more activations; the first had 100 MiB more at its peak."""
    a, b = tmp_path / "a.pickle", tmp_path / "b.pickle"
    a.write_bytes(pickle.dumps(content_of((40 * MIB, FORWARD), (200 * MIB, LOOP), 1)))
    b.write_bytes(pickle.dumps(content_of((40 * MIB, FORWARD), (60 * MIB, FORWARD), (30 * MIB, STEP))))
    return a, b


def diff(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*VRAMSCOPE, "diff", *map(str, arguments), "--state-dir", str(folder / "state")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def as_json(*arguments: str | Path, folder: Path) -> dict[str, Any]:
    done = diff(*arguments, "--json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_tables_have_the_largest_differences_first(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = diff(*files, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"A: {files[0]}, device 0, at the end"
    assert any(line.split()[:2] == ["+90.0", "MiB"] and line.endswith("active") for line in lines)
    sites = lines[lines.index("live bytes by allocation site (the first frame outside torch)") + 2 :]
    assert sites[0].split()[:2] == ["+60.0", "MiB"]
    assert sites[0].endswith("grown      forward (/home/ada/model.py:30)")
    assert sites[1].endswith("only in B  step (/home/ada/train.py:60)")


def test_json_is_in_bytes_and_every_table_adds_up(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = as_json(*files, folder=tmp_path)
    assert found["totals"]["active_bytes"] == {"a": 40 * MIB, "b": 130 * MIB, "difference": 90 * MIB}
    for table in ("categories", "sites", "stacks"):
        assert sum(row["difference_bytes"] for row in found[table]) == 90 * MIB
    assert found["stacks"][0]["frames"] == [list(frame) for frame in FORWARD]


def test_only_the_first_rows_can_be_asked_for_and_they_add_up_too(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = as_json(*files, "--top", "1", folder=tmp_path)
    assert [row["name"] for row in found["sites"]] == ["forward (/home/ada/model.py:30)", "1 more"]
    assert sum(row["difference_bytes"] for row in found["sites"]) == 90 * MIB


def test_two_moments_of_one_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = as_json(files[0], files[0], "--at-a", "peak", folder=tmp_path)
    assert found["totals"]["active_bytes"]["difference"] == -200 * MIB
    assert (found["a"]["moment"], found["b"]["moment"]) == ("after event 3", "at the end")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--at-a", "99"), "has no event 99"),
        (("--device-b", "7"), "has no device 7"),
        (("--at-b", "oom"), "recorded no out-of-memory"),
    ],
)
def test_what_is_not_there_is_one_line(
    more: tuple[str, ...], words: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    done = diff(*files, *more, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_a_file_that_is_not_there_is_one_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = diff(files[0], tmp_path / "gone.pickle", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("vramscope: cannot read ")
    assert done.stderr.count("\n") == 1


def test_texts_of_a_file_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(content_of((4 * MIB, (("\x1b[2J.py", 1, "\x1b[2J"),)))))
    assert "\x1b" not in diff(path, path, folder=tmp_path).stdout
