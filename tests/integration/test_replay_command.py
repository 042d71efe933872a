"""``vramscope replay`` as a user runs it."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE, eventually, running, short_folder
from tests.unit.replay.programs import fragmented, written
from vramscope.allocator import Allocator
from vramscope.units import GIB, KIB, MIB

EXPANDABLE = ("--alloc-conf", "expandable_segments:True")
ROW = {"alloc_conf", "peak_reserved_bytes", "peak_active_bytes", "retries", "oom", "fidelity"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job that ran out of memory with 60 MiB free in three holes, and 100 MiB free on its card of 200 MiB."""
    return written(fragmented(), tmp_path / "job.pickle")


def replay(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*VRAMSCOPE, "replay", *map(str, arguments), "--state-dir", str(Path(arguments[0]).parent / "state")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def as_json(*arguments: str | Path) -> list[dict[str, Any]]:
    done = replay(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_recorded_settings_come_first_and_say_how_far_to_trust_it(file: Path) -> None:
    recorded, expandable = as_json(file, *EXPANDABLE)
    assert recorded.keys() >= ROW
    assert expandable.keys() >= ROW
    assert recorded["fidelity"] == {"addresses": 1.0, "segments": 1.0, "peak": 1.0}
    assert (recorded["alloc_conf"], expandable["alloc_conf"]) == ("", "expandable_segments:True")
    # THEN the other settings would have helped
    assert (recorded["oom"]["size_bytes"], recorded["retries"]) == (120 * MIB, 1)
    assert (expandable["oom"], expandable["retries"]) == (None, 0)
    assert expandable["fidelity"] == {"addresses": None, "segments": None, "peak": None}


def test_a_table_for_people(file: Path) -> None:
    done = replay(file, *EXPANDABLE, "--alloc-conf", "max_split_size_mb:64,expandable_segments:True")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "addresses 100 %, segments 100 %, peak 100 %" in lines[1]
    assert lines[2] == "room for the process: 200.0 MiB"
    assert lines[5].startswith("recorded: defaults")
    assert "120.0 MiB at event" in lines[5]
    assert lines[6].startswith("expandable_segments:True ")
    assert lines[6].endswith(" no")
    # THEN settings that harm each other are named
    assert any("pytorch#193400" in line for line in lines)


def test_another_capacity_is_for_all_and_leaves_the_fidelity(file: Path) -> None:
    recorded, expandable = as_json(file, *EXPANDABLE, "--capacity", "400MiB")
    assert (recorded["oom"], expandable["oom"]) == (None, None)
    assert recorded["peak_reserved_bytes"] == 220 * MIB
    assert recorded["fidelity"]["addresses"] == 1.0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--alloc-conf", "expandable_segments:maybe"), "expected True or False, not 'maybe'"),
        (("--alloc-conf", "per_process_memory_fraction:0.5"), "give it with --capacity"),
        (("--device", "3"), "has no device 3"),
        (("--capacity", "much"), "is not a size"),
    ],
)
def test_what_cannot_be_is_one_line(more: tuple[str, ...], words: str, file: Path) -> None:
    done = replay(file, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_file_without_a_trace_is_one_line(tmp_path: Path) -> None:
    done = replay(written(Allocator(GIB, trace_max_entries=0), tmp_path / "bare.pickle"))
    assert done.returncode == 2
    assert "no allocations were recorded" in done.stderr
    assert done.stderr.count("\n") == 1


def children(process: int) -> list[int]:
    """Return the processes that replay for ``process``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_child = entry.name.isdigit() and f"\nPPid:\t{process}\n" in (entry / "status").read_text()
            if is_child and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_it(number: int) -> None:
    # GIVEN replays that take a while
    allocator = Allocator(GIB, trace_max_entries=200_000)
    for _ in range(60_000):
        allocator.free(allocator.malloc(3 * KIB))
    with short_folder() as folder:
        path = folder / "long.pickle"
        path.write_bytes(pickle.dumps(allocator.snapshot()))
        many = [word for size in range(20, 60) for word in ("--alloc-conf", f"max_split_size_mb:{size}")]
        with running([*VRAMSCOPE, "replay", str(path), *many], folder=folder) as command:
            eventually(lambda: bool(children(command.process.pid)), lambda: command.errors)
            found = children(command.process.pid)
            # WHEN it is interrupted
            status = command.end(number)
        # THEN none of them is left, and nobody sees a traceback, unless it could not even end by itself
        assert status in (130, 143, -signal.SIGKILL)
        eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in found), lambda: "children are left")
        assert number == signal.SIGKILL or command.errors == ""
