"""``vramscope fit`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE
from tests.unit.replay.programs import fragmented, written


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job with 60 MiB free in three holes, and 100 MiB free on its card."""
    return written(fragmented(), tmp_path / "job.pickle")


def fit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*VRAMSCOPE, "fit", *map(str, arguments), "--state-dir", str(Path(arguments[0]).parent / "state")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_it_says_what_is_in_the_way(file: Path) -> None:
    done = fit(file, "110MiB", "--at", "oom")
    assert (done.returncode, done.stderr) == (0, "")
    assert "110.0 MiB (a block of 115343360 bytes): would fail" in done.stdout
    assert "cached for it: 60.0 MiB free in 3 holes, the largest of 20.0 MiB" in done.stdout
    assert "free on the device: 100.0 MiB" in done.stdout
    assert "  default pool: 100.0 MiB (a new segment)" in done.stdout


def test_json_is_in_bytes(file: Path) -> None:
    found = json.loads(fit(file, "20971520", "--free", "1GiB", "--json").stdout)
    assert (found["way"], found["driver_free_bytes"], found["size_bytes"]) == ("a cached block", 1 << 30, 20 << 20)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("3XB",), "is not a size"),
        (("0",), "always fits"),
        (("1MiB", "--stream", "-1"), "the number of a stream"),
        (("1MiB", "--free", "900TiB"), "more than any GPU"),
        (("1MiB", "--at", "999"), "has no event 999"),
        (("1MiB", "--device", "3"), "has no device 3"),
    ],
)
def test_what_cannot_be_is_one_line(more: tuple[str, ...], words: str, file: Path) -> None:
    done = fit(file, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
