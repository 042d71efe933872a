"""Every kind of file that holds a snapshot reads the same."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.segments import BASE, segment
from tests.unit.snapshot.trees import event, opened, small_tree, tree
from vramscope.errors import BadInputError
from vramscope.snapshot.columns import ACTIONS, UNKNOWN_ACTION, Snapshot
from vramscope.units import MIB

HAS_ZSTD = sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None
DUMPED = pickle.dumps(small_tree())


def page(content: bytes) -> bytes:
    """Return what torch.cuda._memory_viz.trace_plot writes: its zero bytes included."""
    content += b"\0" * (3 - len(content) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(content).decode()}])
    return f"<!DOCTYPE html>\n<html><script>const local_files = {files}\n</script></html>".encode()


def assert_is_the_small_tree(found: Snapshot) -> None:
    (device,) = found.devices
    assert device.contradiction is None
    assert device.state.segment_address.tolist() == [BASE]
    assert device.state.block_bytes.tolist() == [MIB, MIB]
    assert device.state.block_requested_bytes.tolist()[0] == MIB - 100
    assert [ACTIONS[code] for code in device.events.action.tolist()] == [
        "segment_alloc",
        "alloc",
        "alloc",
        "free_requested",
        "free_completed",
    ]
    assert device.events.address.tolist() == [BASE, BASE, BASE + MIB, BASE + MIB, BASE + MIB]
    assert device.events.size_bytes.tolist() == [2 * MIB, MIB - 100, 1000, 1000, 1000]
    stack = [("train.py", 7, "forward"), ("train.py", 90, "main")]
    assert found.frames(int(device.block_stack[0])) == stack
    assert [found.frames(code) for code in device.events.stack.tolist()] == [
        stack,
        stack,
        [("train.py", 8, "backward")],
        [],
        [],
    ]
    assert len(found.stacks) == 2
    assert not found.ignored


@pytest.mark.parametrize(
    ("content", "container"),
    [
        *((pickle.dumps(small_tree(), protocol), f"pickle, protocol {protocol}") for protocol in (2, 3, 4, 5)),
        (DUMPED + bytes(1000), "pickle, protocol 4"),
        (gzip.compress(DUMPED), "pickle, protocol 4 in gzip"),
        (gzip.compress(gzip.compress(DUMPED)), "pickle, protocol 4 in gzip in gzip"),
        (json.dumps(small_tree()).encode(), "JSON"),
        (b"\xef\xbb\xbf" + json.dumps(small_tree(), indent=2).encode(), "JSON"),
        (page(DUMPED), "pickle, protocol 4 in a MemoryViz page"),
        (gzip.compress(page(DUMPED)), "pickle, protocol 4 in a MemoryViz page in gzip"),
    ],
)
def test_a_kind_of_file(content: bytes, container: str, tmp_path: Path) -> None:
    found = opened(tmp_path, content)
    assert_is_the_small_tree(found)
    assert found.container == container
    assert found.notes == ()


@pytest.mark.skipif(not HAS_ZSTD, reason="zstandard is not installed")
def test_zstd(tmp_path: Path) -> None:
    zstandard: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "zstandard")
    assert_is_the_small_tree(opened(tmp_path, zstandard.compress(DUMPED)))


@pytest.mark.skipif(HAS_ZSTD, reason="zstandard is installed")
def test_zstd_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="pip install zstandard"):
        opened(tmp_path, b"\x28\xb5\x2f\xfd" + bytes(100))


def test_a_bare_segment_list_has_no_history(tmp_path: Path) -> None:
    # GIVEN what torch.cuda.memory_snapshot() returns, of the second of two GPUs
    found = opened(tmp_path, [segment((MIB, "live"), (MIB, "free"), device=1)])

    # THEN only that device is there
    assert [device.device for device in found.devices] == [1]
    assert len(found.devices[0].events) == 0
    assert found.torch_version_guess == "2.1 or later"


def test_torch_2_0_keeps_stacks_in_the_history_and_gives_blocks_no_address(tmp_path: Path) -> None:
    # GIVEN
    made = segment((MIB, "live"), (2 * MIB, "free"), (MIB, "live"))
    for key in ("segment_pool_id", "is_expandable"):
        del made[key]
    for number, block in enumerate(made["blocks"]):
        del block["address"]
        frames = [{"filename": "old.py", "line": number, "name": "f"}]
        block["history"] = [
            {"addr": 1, "real_size": block["requested_size"], "frames": frames},
            {"addr": 2, "frames": []},
        ]
    del made["blocks"][1]["history"]

    # WHEN
    found = opened(tmp_path, {"segments": [made], "device_traces": [[]]})

    # THEN
    (device,) = found.devices
    assert device.contradiction is None
    assert device.state.block_address.tolist() == [BASE, BASE + MIB, BASE + 3 * MIB]
    stacks = [found.frames(code) for code in device.block_stack.tolist()]
    assert stacks == [[("old.py", 0, "f")], [], [("old.py", 2, "f")]]
    assert found.torch_version_guess == "2.0"


def test_addresses_and_streams_are_unsigned_64_bit_numbers(tmp_path: Path) -> None:
    # GIVEN an address in the upper half, and a stream printed as a negative number
    made = segment((MIB, "live"), stream=-16)
    made["address"] = made["blocks"][0]["address"] = 0xFFFF_8000_0000_0000
    found = opened(tmp_path, tree(made, traces=[[event("alloc", 0, 5, addr=-4096, stream=(1 << 64) - 2)]]))

    # THEN
    (device,) = found.devices
    assert device.contradiction is None
    assert device.state.segment_address.tolist() == [0xFFFF_8000_0000_0000]
    assert device.state.segment_stream.tolist() == [(1 << 64) - 16]
    assert device.events.address.tolist() == [(1 << 64) - 4096]
    assert device.events.stream.tolist() == [(1 << 64) - 2]


def test_what_a_later_release_adds_is_ignored_and_counted(tmp_path: Path) -> None:
    # GIVEN keys and an action that no release has yet
    made = segment((MIB, "live"))
    made["colour"] = made["blocks"][0]["colour"] = "red"
    trace = [event("alloc", 0, MIB - 100), {"action": "defragment", "who": 3}, event("snapshot", colour=1)]
    content = tree(made, traces=[trace])
    content["tomorrow"] = {}

    # WHEN
    found = opened(tmp_path, content)

    # THEN the rest is there, in its place
    events = found.devices[0].events
    assert events.action.tolist() == [0, UNKNOWN_ACTION, 7]
    assert found.ignored == {
        "segment key colour": 1,
        "block key colour": 1,
        "action defragment": 1,
        "event key who": 1,
        "event key colour": 1,
        "top-level key tomorrow": 1,
    }


def test_pinned_memory_of_torch_2_14(tmp_path: Path) -> None:
    host = segment((MIB, "live"), device=-1)
    found = opened(tmp_path, tree(host_segments=[host], host_traces=[event("alloc", 0, MIB - 100)]))
    assert found.host is not None
    assert found.host.stated_allocated_bytes == MIB
    assert len(found.host.events) == 1
    assert found.torch_version_guess == "2.14 or later"


def test_bytes_after_the_end_are_told_because_ranks_may_have_written_one_file(tmp_path: Path) -> None:
    found = opened(tmp_path, DUMPED + DUMPED[300:])
    assert_is_the_small_tree(found)
    (note,) = found.notes
    assert note.startswith(f"{len(DUMPED) - 300} bytes follow the end")
