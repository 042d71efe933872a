"""``vramscope oom``: what it prints of a file or the standard input, and the one line where there is nothing to read."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.__main__ import main
from vramscope.cli import oom

ROOT = Path(__file__).parents[2]
MESSAGE = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 8.00 GiB "
    "of which 4.00 MiB is free. Process 77 has 1.00 GiB memory in use."
)
TABLE = (
    "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n"
    "| Allocated memory      |   1024 KiB |   1024 KiB |   1024 KiB |      0 B   |\n"
    "|       from large pool |      0 KiB |      0 KiB |      0 KiB |      0 B   |\n"
    "|       from small pool |   1024 KiB |   1024 KiB |   1024 KiB |      0 B   |\n"
)


def pasted(folder: Path, text: str, encoding: str = "utf-8") -> str:
    file = folder / "pasted.txt"
    file.write_bytes(text.encode(encoding))
    return str(file)


def test_a_paste_with_both_is_printed_as_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # WHEN
    status = main(["oom", pasted(tmp_path, f"{MESSAGE}\n\nMemory summary:\n{TABLE}")])

    # THEN
    shown = capsys.readouterr().out
    assert status == 0
    assert shown.startswith("CUDA out of memory on device 1, rank 1\n  tried to allocate                20.00 MiB\n")
    assert "in use by process 77              1.00 GiB\n" in shown
    assert "\n\nMemory summary of device – (sizes rounded down)\n" in shown


def test_json_holds_the_facts_and_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # WHEN
    assert main(["oom", "--json", pasted(tmp_path, f"{MESSAGE}\n{TABLE}")]) == 0

    # THEN
    found = json.loads(capsys.readouterr().out)
    assert (found["backend"], found["device"], found["rank"]) == ("cuda", 1, 1)
    assert found["tried"] == {"text": "20.00 MiB", "bytes": 20 << 20, "tolerance": 5244}
    assert found["processes"][0]["pid"] == 77
    assert found["tables"][0]["rows"]["Allocated memory"]["small"] == [1 << 20, 1 << 20, 1 << 20, 0]


@pytest.mark.parametrize(("text", "keys"), [(MESSAGE, "tried"), (TABLE, "tables")])
def test_what_is_not_in_the_paste_is_not_in_the_json(
    text: str, keys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["oom", "--json", pasted(tmp_path, text)])
    found = json.loads(capsys.readouterr().out)
    assert (keys in found, {"tried", "tables"} <= set(found)) == (True, False)


@pytest.mark.parametrize("arguments", [["oom"], ["oom", "-"]])
def test_the_standard_input_is_read_where_no_file_is_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MESSAGE.encode())))
    assert main(arguments) == 0
    assert "20.00 MiB" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_each_encoding_that_shells_write_is_read(
    encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["oom", pasted(tmp_path, MESSAGE, encoding)]) == 0
    assert "20.00 MiB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loss 0.25\n", "no out-of-memory message and no memory summary"),
        ("", "no out-of-memory message"),
        (TABLE.replace("from large pool", "largest free   "), "not as PyTorch prints it"),
        (f"{MESSAGE}\n{TABLE.replace('1024 KiB', '   1 MiB')}", "not as PyTorch prints it"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["oom", "--json", pasted(tmp_path, text)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert said in shown.err


@pytest.mark.parametrize("name", ["missing.txt", "", "\0", "two\nlines"])
def test_a_file_that_cannot_be_opened_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["oom", f"{tmp_path}/{name}"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("vramscope: cannot read ")
    assert shown.count("\n") == 1


def test_a_file_that_is_no_paste_is_refused_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oom, "LIMIT_BYTES", 1 << 20)
    assert main(["oom", pasted(tmp_path, "x" * (1 << 20))]) == 2
    assert "no out-of-memory message" in capsys.readouterr().err
    assert main(["oom", pasted(tmp_path, "x" * ((1 << 20) + 1))]) == 2
    assert "larger than 1 MiB" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    # GIVEN a pipe that nobody reads any more, as behind head
    reading, writing = os.pipe()
    os.close(reading)

    # WHEN
    command = (sys.executable, "-m", "vramscope", "oom", pasted(tmp_path, MESSAGE))
    found = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)

    # THEN
    assert (found.returncode, found.stderr) == (0, b"")


def test_it_needs_nothing_but_python(tmp_path: Path) -> None:
    # GIVEN neither site-packages nor the environment
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from vramscope.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = (sys.executable, "-I", "-S", "-c", code, "oom", "--json", pasted(tmp_path, MESSAGE))

    # WHEN
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    # THEN
    assert json.loads(found.stdout)["rank"] == 1
