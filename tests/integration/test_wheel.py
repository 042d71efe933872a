"""The wheel: one name in site-packages, all files aboard, and a command that no folder's own app.py can fool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import vramscope
from tests.integration.commands import ROOT, Command, fetch, running, short_folder

ROOMS = ("app.py", "dashboard", "collectors", "layouts", "assets")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site-packages that holds nothing but the wheel."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A working directory whose own modules have our rooms' names, and end the process that imports one."""
    for room in ("app", "collectors", "dashboard", "layouts", "vramscope"):
        (tmp_path / f"{room}.py").write_text(f"raise SystemExit('the {room}.py of the working directory was imported')")
    return tmp_path


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


def environ(site: Path) -> dict[str, str]:
    # Before the checkout of an editable installation, which its .pth puts at the end of sys.path.
    return {"PYTHONPATH": str(site), "PYTHONSAFEPATH": ""}


def command_of(site: Path) -> list[str]:
    return [sys.executable, str(site / "bin" / "vramscope")]


def test_only_vramscope_enters_site_packages(site: Path) -> None:
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"vramscope", "bin"}


def test_every_file_of_the_application_is_aboard(wheel: Path) -> None:
    # GIVEN the files that git knows
    listed = subprocess.run(
        ["git", "ls-files", "vramscope", *ROOMS], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )

    # THEN
    aboard = set(zipfile.ZipFile(wheel).namelist())
    expected = {name if name.startswith("vramscope/") else f"vramscope/_app/{name}" for name in listed.stdout.split()}
    assert expected - aboard == set()
    assert [name for name in aboard if "__pycache__" in name or name.endswith((".so", ".pyc"))] == []
    assert any(name.endswith("licenses/LICENSE") for name in aboard)


def test_the_base_install_asks_for_nothing(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist:")]
    assert required
    assert [line for line in required if "extra ==" not in line] == []


@pytest.mark.parametrize("arguments", [["--version"], ["serve", "--help"], ["collect", "--help"], ["demo", "--help"]])
def test_the_command_works_in_a_hostile_folder(site: Path, hostile: Path, arguments: list[str]) -> None:
    found = subprocess.run(
        [*command_of(site), *arguments],
        cwd=hostile,
        env={**os.environ, **environ(site)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert ("vramscope " + vramscope.__version__ if arguments == ["--version"] else "usage: vramscope") in found.stdout


def test_serve_and_its_collector_run_from_the_wheel_in_a_hostile_folder(
    site: Path, hostile: Path, folder: Path
) -> None:
    serve_command = [*command_of(site), "serve", "--port", "0"]
    with running(serve_command, folder=folder, cwd=hostile, environ=environ(site)) as serve:
        # GIVEN
        address, _, token = serve.line("vramscope: ").removeprefix("vramscope: ").partition("?token=")

        # THEN the collector, the page and its assets are the wheel's
        assert json.loads(fetch(f"{address}healthz"))["collector"] is True
        assert b"/assets/" in fetch(address, token)
        assert mapped_from(serve, site)
        assert serve.end() == 0
        assert serve.errors == ""


def mapped_from(command: Command, site: Path) -> bool:
    """Return whether the collector that ``command`` started works in the wheel's folder."""
    children = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children").read_text().split()
    return [os.readlink(f"/proc/{pid}/cwd") for pid in children] == [str(site)]
