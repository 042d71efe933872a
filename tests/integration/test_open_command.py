"""``vramscope open`` as a user runs it."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import ROOT, VRAMSCOPE, bearer, eventually, fetch, running, short_folder
from tests.unit.compare.jobs import FORWARD, LOOP, content_of
from vramscope.units import MIB


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


@pytest.fixture
def files(folder: Path) -> list[Path]:
    paths = [folder / "a.pickle", folder / "b.pickle"]
    for number, path in enumerate(paths, 1):
        path.write_bytes(pickle.dumps(content_of((number * 4 * MIB, FORWARD), (MIB, LOOP))))
    return paths


URL = re.compile(
    r"vramscope: (http://127\.0\.0\.1:(\d+)/)postmortem/\?file=([0-9a-f]{16})&token=([0-9a-f]{64}) \((.+)\)"
)


def post(url: str, token: str) -> None:
    """Do what the page does when it is opened."""
    with urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=bearer(token)), timeout=60):
        pass


def test_it_prints_a_url_for_each_file_which_opens_there(folder: Path, files: list[Path]) -> None:
    with running((*VRAMSCOPE, "open", *map(str, files), "--port", "0"), folder=folder) as opened:
        # WHEN
        tunnel = opened.line("from another machine")
        lines = opened.output.splitlines()

        # THEN the URLs come first, and the tunnel to the same port
        found = [URL.fullmatch(line) for line in lines[:2]]
        assert all(found)
        address, port, _, token, name = found[0].groups() if found[0] else [""] * 5
        assert f"ssh -L {port}:127.0.0.1:{port} " in tunnel
        assert lines[2:] == [tunnel]
        # AND each says which file it is of
        assert name == files[0].name
        listed = json.loads(fetch(f"{address}postmortem/files.json", token))["files"]
        assert {(row["file"], row["name"], row["origin"]) for row in listed} == {
            (match[3], path.name, "command line") for match, path in zip(found, files, strict=True) if match
        }
        # AND a URL is a page as it is
        assert b"vramscope" in fetch(lines[0].removeprefix("vramscope: ").partition(" ")[0], token)
        state = f"{address}postmortem/files/{found[0][3] if found[0] else ''}/state.json"
        post(state.replace("state.json", "open"), token)
        eventually(lambda: json.loads(fetch(state, token))["state"] == "open", lambda: str(fetch(state, token)))
        # AND no collector was started
        assert not (folder / "run" / "collector.sock").exists()
        assert opened.end() == 0


@pytest.mark.parametrize("name", ["gone.pickle", "."])
def test_what_is_no_file_is_one_line_before_anything_is_served(name: str, folder: Path, files: list[Path]) -> None:
    places = ("--runtime-dir", str(folder / "run"), "--state-dir", str(folder / "state"), "--port", "0")
    command = (*VRAMSCOPE, "open", str(files[0]), str(folder / name), *places)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("vramscope: ")


def test_a_file_that_is_no_snapshot_is_served_and_the_page_says_why(folder: Path) -> None:
    path = folder / "other.pickle"
    path.write_bytes(pickle.dumps({"epoch": 3}))
    with running((*VRAMSCOPE, "open", str(path), "--port", "0"), folder=folder) as opened:
        match = URL.fullmatch(opened.line("vramscope: "))
        assert match
        base, token = f"{match[1]}postmortem/files/{match[3]}", match[4]
        post(f"{base}/open", token)
        eventually(
            lambda: json.loads(fetch(f"{base}/state.json", token))["state"] == "failed",
            lambda: str(fetch(f"{base}/state.json", token)),
        )
        assert "\n" not in json.loads(fetch(f"{base}/state.json", token))["error"]


def test_relative_paths_are_those_of_the_folder_where_it_was_called(folder: Path, files: list[Path]) -> None:
    environ = {"PYTHONPATH": str(ROOT)}
    with running((*VRAMSCOPE, "open", "a.pickle", "--port", "0"), folder=folder, cwd=folder, environ=environ) as opened:
        assert URL.fullmatch(opened.line("vramscope: "))
