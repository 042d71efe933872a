"""Files made to break their reader, and files that broke: each is one line, in time, and nothing runs."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sqlite3
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.segments import segment
from tests.unit.snapshot.trees import event, small_tree, tree, write
from vramscope.errors import BadInputError
from vramscope.snapshot.limits import Limits
from vramscope.trace.opening import open_traced
from vramscope.units import MIB

STRICT = Limits(memory_bytes=1 << 30, seconds=20, unpacked_bytes=64 * MIB)
HEAD = b"\x80\x04"


class Bomb:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (str(self._path),)


def refusal(folder: Path, content: Any, limits: Limits = STRICT) -> str:
    """Return the one line that opening ``content`` ends with."""
    path = write(folder, content)
    with pytest.raises(BadInputError) as raised:
        open_traced(path, limits=limits)
    line = str(raised.value)
    assert line.startswith(f"{path} ")
    assert "\n" not in line
    assert "Traceback" not in line
    return line


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    line = refusal(tmp_path, {"segments": [], "device_traces": [[Bomb(proof)]]})
    assert "asks to import 'posix.mkdir'" in line
    assert not proof.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"(S'true'\nios\nsystem\n.",
        b"(cos\nsystem\nS'true'\no.",
        b"\x82\x01.",
        b"Pname\n.",
        b"\x8c\x04name\x51.",
        b"\x97.",
    ],
    ids=["GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "EXT1", "PERSID", "BINPERSID", "NEXT_BUFFER"],
)
def test_opcodes_that_reach_outside_are_refused(opcodes: bytes, tmp_path: Path) -> None:
    refusal(tmp_path, HEAD + opcodes)


def test_a_length_of_a_terabyte_takes_no_memory(tmp_path: Path) -> None:
    for opcode in (b"\x8d", b"\x8e", b"\x96"):
        line = refusal(tmp_path, HEAD + opcode + struct.pack("<Q", 1 << 40) + b"x.")
        assert "1024 MiB of memory" in line or "cut off or damaged" in line


def test_references_to_the_same_few_records_are_refused_before_they_are_counted_out(tmp_path: Path) -> None:
    # GIVEN 2,000 references to a segment of 2,000 references to a block: 4 million blocks in 20 kB
    made = segment((MIB, "live"))
    made["blocks"] *= 2000
    assert "repeats the same few records" in refusal(tmp_path, tree(*[made] * 2000))


def test_lists_in_lists_a_billion_times_are_refused(tmp_path: Path) -> None:
    laughs: list[Any] = []
    for _ in range(40):
        laughs = [laughs] * 10
    refusal(tmp_path, tree() | {"device_traces": laughs})
    refusal(tmp_path, tree() | {"segments": laughs})


def test_deep_nesting_ends_the_child_and_not_us(tmp_path: Path) -> None:
    deep = HEAD + b"]" * 2_000_000 + b"a" * 1_999_999 + b"."
    assert "not a memory snapshot" in refusal(tmp_path, deep)
    key = HEAD + b"}" + b")" + b"\x85" * 2_000_000 + b"K\x01s."
    assert refusal(tmp_path, key)
    assert "nested too deeply" in refusal(tmp_path, b"[" * 1_000_000)


def test_a_key_that_takes_for_ever_to_hash_ends_at_the_time_limit(tmp_path: Path) -> None:
    # GIVEN a tuple of two references to a tuple of two references …, as a key
    key = HEAD + b"})" + b"2\x86" * 60 + b"K\x01s."
    start_s = time.monotonic()
    line = refusal(tmp_path, key, Limits(memory_bytes=1 << 30, seconds=1))
    assert "more than 1 s" in line
    assert time.monotonic() - start_s < 60


def test_what_unpacks_without_end_stops_at_its_limit(tmp_path: Path) -> None:
    packed = gzip.compress(HEAD + b"(" + b"N" * (100 * MIB))
    assert "unpacks to more than 64 MiB" in refusal(tmp_path, packed)
    shell = gzip.compress(gzip.compress(gzip.compress(pickle.dumps(small_tree()))))
    assert "again and again" in refusal(tmp_path, shell)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (bytes(5000), "is empty"),
        (b"hello", "neither a pickle"),
        (b"\x80\x09.", "neither a pickle"),
        (b"\x80", "neither a pickle"),
        (b"\x1f\x8b\x08", "cut off or damaged"),
        (gzip.compress(pickle.dumps(small_tree()))[:-40], "cut off or damaged"),
        (b"<html>nothing</html>", "page without a snapshot"),
        (b'<html>"base64": "gASV', "page that was cut off"),
        (b'<html>"base64": "!!!"', "cut off or damaged"),
        (b'{"segments": [', "cut off or damaged"),
        (b'{"a": 1}', "not a memory snapshot"),
        (b"\x80\x04N.", "not a memory snapshot"),
        (pickle.dumps([1, 2]), "not a memory snapshot"),
        (pickle.dumps({"segments": 5}), "not a list of records"),
        (pickle.dumps({"segments": [{}]}), "segments' address is missing in some"),
        (
            pickle.dumps(
                {"segments": [{"address": 0, "device": 0, "is_expandable": False}, {"address": 1, "device": 0}]}
            ),
            "missing",
        ),
    ],
)
def test_what_is_no_snapshot_says_what_it_is(content: bytes, says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, content)


def test_a_zip_and_a_database_are_told_from_damage(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
    assert "zip archive" in refusal(tmp_path, packed.getvalue())
    sqlite3.connect(tmp_path / "database").executescript("CREATE TABLE segments (a)").connection.close()
    assert "SQLite" in refusal(tmp_path, (tmp_path / "database").read_bytes())


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("addr", 1.5, "events' addr is not int but float"),
        ("addr", 1 << 64, "events' addr is beyond 64 bits"),
        ("size", -1, "events' size is negative"),
        ("size", True, "events' size is not int but bool"),
        ("size", "12", "events' size is not int but str"),
        ("action", 5, "events' action is not str but int"),
        ("frames", {"a": 1}, "events' frames is not lists"),
        ("frames", [7], "frames is not a list of records"),
        ("frames", [{"filename": 3}], "frames' filename is not str but int"),
        ("frames", [{"filename": "f", "name": "g"}], "frames' line is missing in some"),
        ("pool_id", (1, 2, 3), "events' pool_id is not pairs"),
        ("pool_id", (1, "x"), "events' pool_id is not pairs of whole numbers"),
        ("time_us", None, "events' time_us is not int but NoneType"),
    ],
)
def test_a_value_of_another_type_names_its_place(key: str, value: Any, says: str, tmp_path: Path) -> None:
    assert says in refusal(tmp_path, tree(segment((MIB, "live")), traces=[[event("alloc") | {key: value}]]))


def test_values_that_this_version_does_not_know_are_named(tmp_path: Path) -> None:
    made = segment((MIB, "live"))
    made["blocks"][0]["state"] = "haunted\x1b[2J"
    line = refusal(tmp_path, tree(made))
    assert "blocks' state is 'haunted" in line
    assert line.isprintable()
    made = segment((MIB, "live"), device=5000)
    assert "devices" in refusal(tmp_path, tree(made))


def test_settings_that_are_none_are_left_out(tmp_path: Path) -> None:
    content = tree(allocator_settings={"good": 1, "deep": {"a": {"b": 1}}, "long": "x" * 100_000, "nan": float("nan")})
    found = open_traced(write(tmp_path, content)).snapshot
    assert found.settings == {"good": 1}
    assert found.ignored == {"setting deep": 1, "setting long": 1, "setting nan": 1}


def test_what_is_not_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, says in ((tmp_path, "is not a file"), (pipe, "is not a file"), (tmp_path / "no\nsuch", "cannot read")):
        with pytest.raises(BadInputError, match=says) as raised:
            open_traced(path)
        assert str(raised.value).isprintable()


def test_a_file_beyond_the_size_limit_is_not_read(tmp_path: Path) -> None:
    assert "at most 0 are read" in refusal(tmp_path, small_tree(), Limits(file_bytes=100))


def test_json_numbers_that_are_too_long(tmp_path: Path) -> None:
    content = small_tree()
    content["segments"][0]["address"] = 10**30
    assert "beyond 64 bits" in refusal(tmp_path, json.dumps(content).encode())


@pytest.mark.parametrize("size", [1 << 46, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_sizes_beyond_any_device_are_refused(size: int, tmp_path: Path) -> None:
    # GIVEN a segment, its block and its totals that agree with each other
    huge = segment((size, "live"))
    assert refusal(tmp_path, tree(huge)).startswith(
        f"{tmp_path}/snapshot.pickle cannot be read: its segments have sizes beyond"
    )


@pytest.mark.parametrize("time_us", [1 << 53, -(1 << 63), (1 << 63) - 1])
def test_times_that_no_clock_shows_are_passed_over_and_counted(time_us: int, tmp_path: Path) -> None:
    content = small_tree()
    content["device_traces"][0][1]["time_us"] = time_us
    found = open_traced(write(tmp_path, content)).snapshot
    assert found.devices[0].events.time_us is None
    assert found.ignored == {"event time_us that no clock shows": 5}


def test_halves_of_surrogate_pairs_become_question_marks(tmp_path: Path) -> None:
    # GIVEN texts that UTF-8 cannot hold, wherever a file has texts of its own
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "\ud800", "\ud801": {"\ud802": "\ud803"}}
    content = tree(segment((MIB, "live")), allocator_settings=settings) | {"\ud804": 1}

    # WHEN, THEN
    found = open_traced(write(tmp_path, content)).snapshot
    assert found.settings == {"PYTORCH_CUDA_ALLOC_CONF": "?", "?": {"?": "?"}}
    assert found.ignored == {"top-level key ?": 1}


def test_settings_are_numbers_that_json_can_hold(tmp_path: Path) -> None:
    settings = {"most": (1 << 64) - 1, "least": -(1 << 63), "more": 1 << 64, "less": -(1 << 63) - 1}
    found = open_traced(write(tmp_path, tree(segment((MIB, "live")), allocator_settings=settings))).snapshot
    assert found.settings.keys() == {"most", "least"}
