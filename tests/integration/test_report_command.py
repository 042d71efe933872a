"""``vramscope report`` as a user runs it."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE
from tests.unit.compare.jobs import FORWARD, LOOP, content_of
from vramscope.units import MIB


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "job.pickle"
    path.write_bytes(pickle.dumps(content_of((40 * MIB, FORWARD), (200 * MIB, LOOP), 1)))
    return path


def report(snapshot: Path, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        *VRAMSCOPE,
        "report",
        str(snapshot),
        "-o",
        str(output),
        "--state-dir",
        str(snapshot.parent / "state"),
        *more,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_it_writes_one_file_and_says_what_is_in_it(snapshot: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    done = report(snapshot, output)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{output}: ")
    assert done.stdout.endswith("device 0, after event 3\n")
    text = output.read_text()
    assert "240.0 MiB" in text
    assert text.endswith("</html>\n")
    assert [path.name for path in tmp_path.glob(".vramscope-*")] == []


def test_it_replaces_a_report_and_no_other_file(snapshot: Path, tmp_path: Path) -> None:
    # GIVEN a report, and a page of somebody else's
    output, other = tmp_path / "report.html", tmp_path / "other.html"
    report(snapshot, output)
    other.write_text("<!doctype html>\n<html lang=en>mine</html>")

    # THEN
    assert report(snapshot, output, "--at", "end").returncode == 0
    assert "40.0 MiB" in output.read_text()
    refused = report(snapshot, other)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is no report of vramscope; give another name, or --force" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "mine" in other.read_text()
    assert report(snapshot, other, "--force").returncode == 0
    assert "mine" not in other.read_text()


def test_the_snapshot_itself_is_never_overwritten(snapshot: Path) -> None:
    before = snapshot.read_bytes()
    for more in ((), ("--force",)):
        assert report(snapshot, snapshot, *more).returncode == 2
    assert snapshot.read_bytes() == before


def test_paths_are_shortened_on_request(snapshot: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    report(snapshot, output)
    assert "/home/ada/model.py" in output.read_text()
    report(snapshot, output, "--shorten-paths")
    assert "/home/ada" not in output.read_text()
    assert "forward (model.py:30)" in output.read_text()
    # Neither is the folder of the snapshot.
    assert str(tmp_path) not in output.read_text()


@pytest.mark.parametrize("place", ["nowhere/report.html", ".", "file/report.html"])
def test_a_place_that_cannot_be_written_is_one_line(place: str, snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = report(snapshot, tmp_path / place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_a_snapshot_that_cannot_be_read_leaves_no_file(tmp_path: Path) -> None:
    broken, output = tmp_path / "broken.pickle", tmp_path / "report.html"
    broken.write_bytes(b"\x80\x04}.")
    done = report(broken, output)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert not output.exists()
