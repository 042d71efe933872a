"""requirements*.txt are pinned, lie within pyproject's ranges, and name no place to download from."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRA_OF = {"requirements.txt": "serve", "requirements-dev.txt": "dev", "requirements-demo.txt": "demo"}


def pins(file: str) -> dict[str, str]:
    """Return the version of each package in ``file``. Fails on a line that is no exact pin."""
    found = {}
    for line in (ROOT / file).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line)
            assert match, f"{file}: {line!r} is no exact pin"
            found[canonicalize_name(match[1])] = match[2]
    return found


def extra(name: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["optional-dependencies"][name]]


@pytest.mark.parametrize(("file", "name"), EXTRA_OF.items())
def test_each_dependency_of_the_extra_is_pinned_within_its_range(file: str, name: str) -> None:
    pinned = pins(file)
    for requirement in extra(name):
        pin = pinned.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{file} does not pin {requirement.name}; run make requirements"
        assert requirement.specifier.contains(pin), f"{file} pins {requirement.name} {pin}, not {requirement}"


def test_the_files_agree_where_they_pin_the_same_package() -> None:
    serve, dev = pins("requirements.txt"), pins("requirements-dev.txt")
    assert {name for name in serve.keys() & dev.keys() if serve[name] != dev[name]} == set()


def test_the_base_install_has_no_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []


def test_what_runs_here_is_what_is_pinned() -> None:
    for file in EXTRA_OF:
        for name, pinned in pins(file).items():
            assert version(name).partition("+")[0] == pinned, f"{file} pins {name} {pinned}; run make setup"
