"""The console command: what it accepts, and that every way to fail is one line and exit status 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import vramscope
from vramscope import _location
from vramscope.__main__ import main
from vramscope.cli.arguments import build_parser
from vramscope.errors import BadInputError, VramscopeError
from vramscope.units import GIB, MIB, parse_bytes

ROOT = Path(__file__).parents[2]

# Neither site-packages nor the environment: what a machine with nothing but Python has.
BARE = (sys.executable, "-I", "-S", "-c")
RUN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from vramscope.__main__ import main; "


def test_the_version_needs_nothing_but_python() -> None:
    code = RUN + (
        "third = {'dash', 'flask', 'numpy', 'orjson', 'plotly', 'torch', 'waitress'}\n"
        "try: main(['--version'])\n"
        "except SystemExit: sys.exit(sorted(third & set(sys.modules)))"
    )
    found = subprocess.run((*BARE, code), capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == f"vramscope {vramscope.__version__}\n"
    assert found.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve", "vramscope[serve]"),
        ("collect", "vramscope[serve]"),
        ("demo", "vramscope[serve,demo]"),
        ("demo --no-serve", "vramscope[demo]"),
        ("open a.pickle", "vramscope[serve]"),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(command: str, extra: str, tmp_path: Path) -> None:
    # GIVEN an installation without extras
    arguments = [*command.split(), "--runtime-dir", str(tmp_path / "run"), "--state-dir", str(tmp_path / "state")]

    # WHEN
    code = RUN + f"sys.exit(main({arguments!r}))"
    found = subprocess.run((*BARE, code), capture_output=True, text=True, timeout=60, check=False)

    # THEN
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1
    assert extra in found.stderr


@pytest.mark.parametrize("command", ["diff a.pickle b.pickle", "report a.pickle -o report.html"])
def test_without_numpy_the_commands_that_analyse_say_what_to_install(command: str, tmp_path: Path) -> None:
    code = RUN + f"sys.exit(main({[*command.split(), '--state-dir', str(tmp_path)]!r}))"
    found = subprocess.run((*BARE, code), capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert "vramscope[analysis]" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--port", "abc"], "'abc' is not a whole number"),
        (["serve", "--port", "70000"], "70000 is not from 0 to 65535"),
        (["demo", "--ranks", "1.5"], "'1.5' is not a whole number"),
        (["collect", "--store-cap-mib", "9" * 30], "is not a whole number"),
        (["collect", "--counters-hz", "often"], "'often' is not a number"),
    ],
)
def test_an_argument_of_another_kind_is_refused_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    *_, line = capsys.readouterr().err.splitlines()
    assert words in line
    assert "invalid _" not in line


def test_folders_are_absolute_whatever_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VRAMSCOPE_STATE_DIR", "kept")
    found = build_parser().parse_args(["collect", "--runtime-dir", "run"])
    assert (found.runtime_dir, found.state_dir) == (tmp_path / "run", tmp_path / "kept")


def test_an_error_that_nobody_expected_is_one_line_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: object) -> int:
        raise LookupError("first line\nsecond line")

    monkeypatch.setattr("vramscope.__main__.collect", fail)
    assert main(["collect"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "LookupError: first line second line (" in error
    assert "test_cli.py:" in error


def test_python_app_py_without_its_packages_is_one_line_too() -> None:
    found = subprocess.run(
        (sys.executable, "-E", "-s", "-S", "app.py"), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "vramscope[serve]" in found.stderr


def test_an_error_for_people_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN an installation that lost its application
    def fail() -> None:
        raise VramscopeError("the application is missing beside x; install vramscope again")

    monkeypatch.setattr("vramscope.__main__.put_application_on_path", fail)

    # WHEN
    status = main(["collect"])

    # THEN
    assert status == 2
    assert capsys.readouterr().err == "vramscope: the application is missing beside x; install vramscope again\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "http"],
        ["serve", "--base-path", "/a b/"],
        ["serve", "--base-path", "/a/../b"],
        ["collect", "--counters-hz", "0"],
        ["collect", "--map-interval-ms", "0"],
        ["collect", "--store-cap-mib", "-1"],
        ["demo", "--ranks", "0"],
        ["demo", "--scenario", "nothing"],
        ["demo", "--capacity", "much"],
        ["demo", "--capacity", "0"],
        ["open"],
        ["diff", "a.pickle"],
        ["diff", "a.pickle", "b.pickle", "--top", "0"],
        ["diff", "a.pickle", "b.pickle", "--device-a", "x"],
        ["report", "a.pickle"],
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        build_parser().parse_args(arguments)
    assert refused.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "base_path"), [("/", "/"), ("", "/"), ("tools", "/tools/"), ("/tools/", "/tools/"), ("/a/b", "/a/b/")]
)
def test_a_base_path_begins_and_ends_with_a_slash(given: str, base_path: str) -> None:
    assert build_parser().parse_args(["serve", "--base-path", given]).base_path == base_path


def test_folders_come_from_the_environment_unless_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMSCOPE_RUNTIME_DIR", "/a")
    monkeypatch.setenv("VRAMSCOPE_STATE_DIR", "/b")
    found = build_parser().parse_args(["collect", "--state-dir", "/c"])
    assert (found.runtime_dir, found.state_dir) == (Path("/a"), Path("/c"))


def test_the_application_of_a_wheel_goes_before_what_lies_beside_it(tmp_path: Path) -> None:
    # GIVEN site-packages with another project's app.py and dashboard
    package = tmp_path / "vramscope"
    for folder in (tmp_path, package / "_app"):
        (folder / "dashboard").mkdir(parents=True)
        (folder / "app.py").touch()

    # THEN
    assert _location.application_folder(package) == package / "_app"


def test_a_checkout_is_found_and_a_broken_installation_is_said(tmp_path: Path) -> None:
    assert _location.application_folder() == ROOT
    with pytest.raises(VramscopeError, match="install vramscope again"):
        _location.application_folder(tmp_path / "vramscope")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("24GiB", 24 * GIB),
        ("24 gib", 24 * GIB),
        ("512M", 512 * MIB),
        ("1.5GB", 1_500_000_000),
        ("4096", 4096),
        ("0B", 0),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "1 PiB", "1e9", "24 GiB of memory", "٣ GiB", "1.2.3M", "5iB", "9" * 400]
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInputError, match="24GiB"):
        parse_bytes(text)
