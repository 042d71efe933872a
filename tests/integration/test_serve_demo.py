"""``vramscope demo``: the collector, the dashboard and the job start with one command and end with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import DEADLINE_S, VRAMSCOPE, Command, eventually, fetch, running, short_folder

TOKEN = "token-of-the-demo"
DEMO = (*VRAMSCOPE, "demo", "--small", "--token", TOKEN)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


def commands_in(folder: Path) -> list[str]:
    """Return the command lines of the processes that were told to use ``folder``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_shows_a_simulated_job_and_ends_all_that_it_started(folder: Path, number: int) -> None:
    with running(("setsid", *DEMO, "--port", "0"), folder=folder) as demo:
        # GIVEN the printed URL
        address = demo.line("vramscope: ").removeprefix("vramscope: ").partition("?")[0]

        # WHEN the job has connected
        def jobs() -> list[dict[str, object]]:
            found: list[dict[str, object]] = json.loads(fetch(f"{address}api/v1/jobs", TOKEN))["jobs"]
            return found

        eventually(lambda: bool(jobs()), lambda: f"no job: {demo.output}{demo.errors}")

        # THEN it is called what it is
        assert [job["simulated"] for job in jobs()] == [True]

        # AND all its processes end with it
        assert len(commands_in(folder)) == 3
        os.killpg(demo.process.pid, number)  # as a terminal does
        assert demo.process.wait(DEADLINE_S) == 0
        eventually(lambda: commands_in(folder) == [], lambda: f"still running: {commands_in(folder)}")

        # AND the job is not taken for one that was lost
        history = sqlite3.connect(folder / "state" / "demo" / "history.sqlite")
        assert [json.loads(info)["end_reason"] for (info,) in history.execute("SELECT info FROM ranks")] == ["detached"]
        history.close()

        # AND the history of real jobs knows nothing of it
        assert (folder / "state" / "demo" / "history.sqlite").exists()
        assert not (folder / "state" / "history.sqlite").exists()


def test_its_processes_end_when_it_is_killed(folder: Path) -> None:
    with running((*DEMO, "--port", "0"), folder=folder) as demo:
        demo.line("vramscope: ")
        demo.end(signal.SIGKILL)
        eventually(lambda: commands_in(folder) == [], lambda: f"still running: {commands_in(folder)}")


def test_a_job_that_ends_stays_to_look_at(folder: Path) -> None:
    with running((*DEMO, "--port", "0", "--steps", "2"), folder=folder) as demo:
        address = demo.line("vramscope: ").removeprefix("vramscope: ").partition("?")[0]
        demo.line("demo: the job has ended and stays to look at")
        eventually(
            lambda: [job["ended"] for job in json.loads(fetch(f"{address}api/v1/jobs", TOKEN))["jobs"]] == [True],
            lambda: demo.output,
        )


def test_a_busy_port_ends_it_with_one_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        demo = Command((*DEMO, "--port", str(other.getsockname()[1])), folder=folder)
        assert demo.process.wait(60) == 2
    assert [line for line in demo.errors.splitlines() if "is in use" in line] == demo.errors.splitlines()
    assert commands_in(folder) == []
