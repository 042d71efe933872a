"""Maps as columns: from PyTorch's segment list, from a frame on the wire, and what is refused."""

from __future__ import annotations

import json
import pickle
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.segments import BASE, device_map, segment
from vramscope.agent.wire import Frame
from vramscope.columns import REQUIRED, DeviceMap, check, from_frame, from_segments, to_segments
from vramscope.errors import WireError
from vramscope.units import GIB, MIB

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "snapshots"
TWO = (
    segment((4 * MIB, "live"), (6 * MIB, "pending"), (10 * MIB, "free"), stream=7, pool=(0, 3)),
    segment((2 * MIB, "live"), at=GIB, small=True, expandable=True),
)
TYPECODES = {"uint8": "B", "uint32": "I", "uint64": "Q"}


def frame_of(found: DeviceMap, *, leave_out: str = "", **more: bytes) -> Frame:
    """Return the frame that carries ``found``, as an agent sends it; ``more`` are columns of single bytes."""
    columns: list[list[Any]] = []
    payload = b""
    for name in (*REQUIRED, "tensor_address", "tensor_bytes", "tensor_category"):
        if name == leave_out:
            continue
        values = getattr(found, name)
        columns.append([name, TYPECODES[str(values.dtype)], len(values)])
        payload += array(TYPECODES[str(values.dtype)], values.tolist()).tobytes()
    for name, raw in more.items():
        columns.append([name, "B", len(raw)])
        payload += raw
    header = {"kind": "map", "device": found.device, "time_unix_us": found.time_unix_us, "columns": columns}
    return Frame(header, payload)


def with_column(sent: Frame, name: str, typecode: str, values: list[int]) -> Frame:
    """Return ``sent`` with the values, and perhaps the type, of one column replaced."""
    columns, payload, offset = [], b"", 0
    for own_name, own_typecode, count in sent.header["columns"]:
        length = array(own_typecode).itemsize * count
        is_it = own_name == name
        columns.append([name, typecode, len(values)] if is_it else [own_name, own_typecode, count])
        payload += array(typecode, values).tobytes() if is_it else sent.payload[offset : offset + length]
        offset += length
    return Frame({**sent.header, "columns": columns}, payload)


def test_segments_of_one_device_come_back_as_they_were() -> None:
    # GIVEN segments out of order, one of them another device's
    segments = [TWO[1], segment((2 * MIB, "live"), at=2 * GIB, device=1), TWO[0]]

    # WHEN they are read for device 0 and written again
    written = to_segments(from_segments(segments, device=0))

    # THEN they are the device's, in address order
    assert written == [{**own, "segment_pool_id": list(own["segment_pool_id"])} for own in TWO]


def test_a_device_without_segments_is_an_empty_map() -> None:
    found = from_segments(TWO, device=5)
    assert (found.segment_count, found.block_count) == (0, 0)
    assert found.block_segment().tolist() == []


def test_a_block_knows_its_segment() -> None:
    assert device_map(*TWO).block_segment().tolist() == [0, 0, 0, 1]


def test_the_other_name_of_a_pending_free_is_known() -> None:
    # GIVEN a block in the state that PyTorch's docstring names
    renamed = segment((2 * MIB, "pending"))
    renamed["blocks"][0]["state"] = "active_awaiting_free"
    # THEN it is read as the other spelling is
    assert device_map(renamed).block_state.tolist() == device_map(segment((2 * MIB, "pending"))).block_state.tolist()


def test_a_stream_that_was_printed_as_a_negative_number_keeps_its_bits() -> None:
    assert device_map(segment((MIB, "live"), stream=-16)).segment_stream.tolist() == [2**64 - 16]


def test_a_map_survives_the_wire() -> None:
    # GIVEN a map with a named tensor
    labels = (("head.weight", "(4, 4)", "float32"),)
    sent = replace(
        device_map(*TWO),
        tensor_address=np.array([BASE], np.uint64),
        tensor_bytes=np.array([MIB], np.uint64),
        tensor_category=np.array([1], np.uint8),
        tensor_labels=labels,
    )
    # WHEN it is sent and read
    found = from_frame(frame_of(sent, tensor_labels=json.dumps(labels).encode()))
    # THEN it is the same
    assert to_segments(found) == to_segments(sent)
    assert found.tensor_labels == labels
    assert found.boundary_address is None


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_frame_without_a_column_is_refused(missing: str) -> None:
    with pytest.raises(WireError, match=missing):
        from_frame(frame_of(device_map(*TWO), leave_out=missing))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"segment_total_bytes": np.array([MIB, 2 * MIB], np.uint64)}, id="blocks that do not fill"),
        pytest.param({"segment_address": np.array([BASE + GIB, BASE], np.uint64)}, id="segments out of order"),
        pytest.param({"segment_first_block": np.array([0, 0, 4], np.uint32)}, id="a segment without blocks"),
        pytest.param({"segment_first_block": np.array([0, 3], np.uint32)}, id="too few bounds"),
        pytest.param({"segment_first_block": np.array([0, 3, 9], np.uint32)}, id="bounds beyond the blocks"),
        pytest.param({"block_state": np.array([0, 1, 2, 3], np.uint8)}, id="an unknown state"),
        pytest.param({"block_bytes": np.array([MIB], np.uint64)}, id="too few sizes"),
        pytest.param({"tensor_address": np.array([1], np.uint64)}, id="a tensor without a size"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        check(replace(device_map(*TWO), **change))


@pytest.mark.parametrize("labels", [b"not JSON", b"[1, 2]", b'[["a", "b"]]', b"[" * 100_000])
def test_labels_that_are_no_labels_are_refused(labels: bytes) -> None:
    with pytest.raises(WireError, match="labels"):
        from_frame(frame_of(device_map(*TWO), tensor_labels=labels))


@pytest.mark.skipif(not CASES.is_dir(), reason="the public snapshots are not beside the checkout")
def test_public_snapshots_can_be_read() -> None:
    # GIVEN snapshots that people published, each device of them
    read = 0
    for path in sorted(CASES.glob("[0-9]*.pickle")):
        loaded = _plain_pickle(path)
        segments = loaded["segments"] if isinstance(loaded, dict) else loaded
        if not segments or "address" not in segments[0]["blocks"][0] or "broken" in path.name:
            continue  # none, torch 2.0's (its blocks have no addresses), or one that is broken on purpose
        for device in {own["device"] for own in segments}:
            # WHEN it is read
            found = from_segments(segments, device=device)
            # THEN the columns agree with each other
            check(found)
            read += 1
    assert read > 20


@pytest.mark.skipif(not CASES.is_dir(), reason="the public snapshots are not beside the checkout")
def test_a_snapshot_with_broken_invariants_is_refused() -> None:
    segments = _plain_pickle(CASES / "08-synthetic-broken-invariants.pickle")["segments"]
    with pytest.raises(WireError, match="do not fill"):
        check(from_segments(segments, device=0))


def _plain_pickle(path: Path) -> Any:
    """Load a pickle that may hold plain values only."""

    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError(f"{module}.{name}")

    with path.open("rb") as file:
        return Plain(file).load()


@pytest.mark.parametrize(
    ("name", "typecode", "values"),
    [("block_bytes", "I", [1, 2, 3, 4]), ("block_state", "Q", [0, 0, 0, 0]), ("segment_first_block", "Q", [0, 3, 4])],
)
def test_a_column_of_another_type_is_refused(name: str, typecode: str, values: list[int]) -> None:
    with pytest.raises(WireError, match=f"{name} are of another type"):
        from_frame(with_column(frame_of(device_map(*TWO)), name, typecode, values))


@pytest.mark.parametrize("address", [0, 2**64 - 1])
def test_a_block_that_lies_outside_its_segment_is_refused(address: int) -> None:
    # GIVEN a map in which one block claims another address
    sent = device_map(*TWO)
    moved = [address, *sent.block_address.tolist()[1:]]
    # THEN it is not believed
    with pytest.raises(WireError, match="do not fill"):
        from_frame(with_column(frame_of(sent), "block_address", "Q", moved))


def test_blocks_whose_sizes_wrap_around_are_refused() -> None:
    # GIVEN sizes whose sum is the segment's only because 64 bits overflow
    sent = device_map(segment((MIB, "live"), (MIB, "free")))
    wrapping = [2**64 - MIB, 3 * MIB]
    with pytest.raises(WireError, match="do not fill"):
        from_frame(with_column(frame_of(sent), "block_bytes", "Q", wrapping))


@pytest.mark.parametrize("field", ["device", "time_unix_us", "version"])
@pytest.mark.parametrize("value", ["one", None, 1.5, True, [1]])
def test_a_header_without_its_integers_is_refused(field: str, value: object) -> None:
    sent = frame_of(device_map(*TWO))
    with pytest.raises(WireError, match=f"{field} is not an integer"):
        from_frame(Frame({**sent.header, field: value}, sent.payload))


def test_half_a_surrogate_pair_in_a_label_becomes_writable_text() -> None:
    # GIVEN a label that JSON can say and UTF-8 cannot
    sent = device_map(*TWO)
    found = from_frame(
        frame_of(
            replace(
                sent,
                tensor_address=sent.block_address[:1],
                tensor_bytes=sent.block_bytes[:1],
                tensor_category=sent.block_state[:1],
            ),
            tensor_labels=b'[["\\ud800", "", ""]]',
        )
    )
    # THEN it is read as text that can be sent on
    assert found.tensor_labels == (("?", "", ""),)


def test_a_tensor_whose_size_wraps_around_is_refused() -> None:
    # GIVEN a tensor in a block whose end, in 64 bits, lies before its start
    sent = device_map(*TWO)
    tensor = {"tensor_address": sent.block_address[:1], "tensor_bytes": np.array([2**64 - 1], np.uint64)}
    with pytest.raises(WireError, match="ends before it begins"):
        check(replace(sent, **tensor, tensor_category=sent.block_state[:1], tensor_labels=(("a", "", ""),)))
