"""``vramscope info`` as a user runs it."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE, eventually, running
from vramscope.allocator import Allocator
from vramscope.allocator.out_of_memory import OutOfMemory
from vramscope.units import GIB, MIB

# Neither site-packages nor the environment: what a machine with nothing but Python has.
BARE = (sys.executable, "-I", "-S", "-c")


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A job that ran out of memory: 600 MiB of 1 GiB are live, and 500 were freed before they were."""
    allocator = Allocator(GIB, other_bytes=100 * MIB)
    allocator.free(allocator.malloc(500 * MIB - 100))
    for _ in range(2):
        allocator.malloc(300 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(2 * GIB)
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    return path


def info(*arguments: str | Path, state: Path) -> subprocess.CompletedProcess[str]:
    command = [*VRAMSCOPE, "info", *map(str, arguments), "--state-dir", str(state)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_json_has_the_totals_of_each_device_in_bytes(snapshot: Path, tmp_path: Path) -> None:
    # WHEN
    done = info(snapshot, "--json", state=tmp_path / "state")

    # THEN
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    (device,) = found["devices"]
    assert device["device"] == 0
    assert device["allocated_bytes"] == device["active_bytes"] == device["requested_bytes"] == 600 * MIB
    assert device["peak_active_bytes"] == device["peak_requested_bytes"] == 600 * MIB
    (oom,) = device["oom"]
    assert (oom["rounded_request_bytes"], oom["device_free_bytes"]) == (2 * GIB, 124 * MIB)
    assert found["torch_version_guess"] == "2.12 or 2.13"
    assert found["missing"] == []


def test_the_table_is_for_people_and_the_second_time_uses_what_was_kept(snapshot: Path, tmp_path: Path) -> None:
    first, second = (info(snapshot, state=tmp_path / "state") for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    assert "600.0 MiB" in first.stdout
    assert "out of memory on device 0" in first.stdout
    assert second.stdout == first.stdout
    assert len(list((tmp_path / "state" / "parsed").iterdir())) == 1


def test_a_state_folder_that_cannot_be_used_does_not_stop_it(snapshot: Path, tmp_path: Path) -> None:
    # GIVEN a file where the folder should be
    (tmp_path / "state").write_text("")
    done = info(snapshot, state=tmp_path / "state")
    assert done.returncode == 0
    assert "600.0 MiB" in done.stdout
    assert done.stderr.count("\n") == 1
    assert "not kept for the next time" in done.stderr


def test_the_state_folder_that_it_makes_is_one_that_serve_takes(snapshot: Path, tmp_path: Path) -> None:
    assert info(snapshot, state=tmp_path / "state").returncode == 0
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("where", "status", "says"),
    [
        ("> /dev/full", 2, "vramscope: cannot write to the standard output: No space left on device\n"),
        (">&-", 0, ""),
        ("2>&- > /dev/null", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_an_output_that_takes_nothing_is_no_error_or_one_line(
    where: str, status: int, says: str, snapshot: Path, tmp_path: Path
) -> None:
    command = shlex.join([*VRAMSCOPE, "info", str(snapshot), "--state-dir", str(tmp_path / "state")])
    done = subprocess.run(
        ["sh", "-c", f"{command} {where}"], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (status, says)


def test_a_terminal_without_the_characters_shows_the_rest(snapshot: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*VRAMSCOPE, "diff", str(snapshot), str(snapshot), "--state-dir", str(tmp_path / "state")],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "600.0 MiB" in done.stdout


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_its_reader_and_leaves_nothing(number: int, status: int, tmp_path: Path) -> None:
    # GIVEN a file that takes a while
    frames = [{"filename": "train.py", "line": 1, "name": "step"}]
    events = [{"action": "snapshot", "addr": 0, "size": size, "stream": 0, "frames": frames} for size in range(200_000)]
    path, parsed = tmp_path / "long.pickle", tmp_path / "state" / "parsed"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))

    # WHEN its reader has begun
    with running([*VRAMSCOPE, "info", str(path), "--state-dir", str(tmp_path / "state")], folder=tmp_path) as command:
        eventually(lambda: parsed.is_dir() and any(parsed.iterdir()), lambda: command.errors)
        assert command.end(number) == status

        # THEN
        assert command.output + command.errors == ""
    assert not list(parsed.iterdir())
    readers = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert str(parsed) not in readers


@pytest.mark.parametrize("content", [b"", b"\x80\x04}.", pickle.dumps({"segments": []})[:20]])
def test_what_cannot_be_read_is_one_line_and_exit_status_2(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.pickle"
    path.write_bytes(content)
    done = info(path, "--json", state=tmp_path / "state")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"vramscope: {path} ")
    assert done.stderr.count("\n") == 1


def test_names_in_a_file_cannot_move_the_cursor(tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J.pickle"
    path.write_bytes(
        pickle.dumps({"segments": [], "\x1b[2Jkey": 1, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "\x1b[2J"}})
    )
    done = info(path, state=tmp_path / "state")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr


def test_without_numpy_it_says_what_to_install(snapshot: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from vramscope.__main__ import main; "
        f"sys.exit(main(['info', {str(snapshot)!r}]))"
    )
    done = subprocess.run((*BARE, code), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "vramscope[analysis]" in done.stderr
