"""Whatever an agent or a viewer says, the state machine answers, refuses or ignores it: it never raises."""

from __future__ import annotations

import array
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collector_peers import counters, hello, map_frame
from tests.unit.collectors.office import START_US, Office
from vramscope.agent.wire import MAGIC, PREFIX, PROTOCOL_VERSION, Decoder, encode
from vramscope.errors import WireError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
AGENT_MESSAGES: list[dict[str, Any]] = [
    hello(),
    counters(START_US + 1),
    {"kind": "mark", "time_unix_us": START_US, "mark": "user", "label": "epoch 3", "device": 0, "step": 1},
    {"kind": "notes", "notes": ["line"], "devices": hello()["devices"]},
    {"kind": "reply", "request_id": 1, "ok": True, "frames": [["file", 1, "name"]], "reason": None, "error": None},
    {"kind": "bye", "reason": "exited"},
]
CALL = {"kind": "call", "call_id": 5, "params": {"job_id": "x", "device": 0, "rank": 0, "address": 1, "max_age_us": 0}}
VIEWER_MESSAGES = [
    {**CALL, "method": method} for method in ("stats", "map", "stack", "dump", "dumps", "jobs", "readings")
]


@st.composite
def spoiled(draw: st.DrawFn, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one of the messages with a field, at any depth of its objects, replaced by anything."""
    message: dict[str, Any] = dict(draw(st.sampled_from(messages)))
    here = message
    while True:
        key = draw(st.sampled_from([name for name in here if name != "kind"]))
        inner = here[key]
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            here[key] = [dict(inner[0])]
            here = here[key][0]
        elif isinstance(inner, dict) and inner:
            here[key] = dict(inner)
            here = here[key]
        else:
            here[key] = draw(JSON)
            return message
        if draw(st.booleans()):
            return message


@settings(max_examples=300, deadline=None)
@given(message=spoiled(AGENT_MESSAGES))
def test_a_spoiled_message_of_an_agent_costs_at_most_its_connection(message: dict[str, Any]) -> None:
    # GIVEN a good agent whose stack a viewer asked for
    office = Office()
    job_id = office.agent(1)
    office.viewer(2)
    office.call(2, "stack", job_id=job_id, device=0, rank=0, address=1)

    # WHEN it, or one that says hello, sends what is spoiled
    connection = 3 if message["kind"] == "hello" else 1
    if connection == 3:
        office.open(3)
    office.say(connection, message)

    # THEN what is known can still be sent, stored and listed
    office.wait(1)
    office.jobs.take_changes()
    office.call(2, "jobs", 9)
    assert office.replies(2)[-1]["call_id"] == 9
    assert connection not in office.closed or "\n" not in office.closed[connection]


@settings(max_examples=200, deadline=None)
@given(message=spoiled(VIEWER_MESSAGES))
def test_a_spoiled_call_is_answered_or_its_connection_closed(message: dict[str, Any]) -> None:
    office = Office()
    office.agent(1)
    office.viewer(2)

    office.say(2, message)
    office.wait(100)

    assert office.replies(2) or 2 in office.closed


GOOD_MAP = next(iter(Decoder().feed(map_frame(START_US))))


@settings(max_examples=200, deadline=None)
@given(index=st.integers(0, len(GOOD_MAP.header["columns"]) - 1), typecode=st.sampled_from("BIiqQd"), data=st.data())
def test_a_map_whose_column_is_spoiled_is_refused_or_taken(index: int, typecode: str, data: st.DataObject) -> None:
    # GIVEN a map of which one column has another type and any bytes
    office = Office()
    job_id = office.agent(1)
    described = [list(column) for column in GOOD_MAP.header["columns"]]
    sizes = {"B": 1, "I": 4, "i": 4, "q": 8, "Q": 8, "d": 8}
    columns: dict[str, Any] = {}
    offset = 0
    for number, (name, own, count) in enumerate(described):
        end = offset + sizes[own] * count
        columns[name] = GOOD_MAP.payload[offset:end]
        offset = end
        if number == index:
            columns[name] = data.draw(st.binary(max_size=64))
            described[number] = [name, typecode, len(columns[name]) // sizes[typecode]]
            columns[name] = columns[name][: described[number][2] * sizes[typecode]]
    payload = b"".join(columns.values())
    frame = GOOD_MAP._replace(header={**GOOD_MAP.header, "columns": described}, payload=payload)

    # WHEN it arrives
    instructions = office.desk.handle(1, frame, START_US)

    # THEN it was refused, or its figures can be asked for
    found = office.jobs.find(job_id, 0, 0)
    assert found is not None
    _job, _rank, series = found
    assert bool(instructions) != (series.map is not None)


@pytest.mark.parametrize("count", [12.0, True, math.nan])
def test_a_column_whose_count_is_not_whole_is_refused(count: object) -> None:
    # GIVEN a frame whose header says that a column has so many items
    text = json.dumps({"kind": "map", "columns": [["segment_is_small", "B", count]]}).encode()
    frame = PREFIX.pack(MAGIC, PROTOCOL_VERSION, len(text), 12) + text + bytes(12)

    # THEN it is refused before anybody reads the column
    with pytest.raises(WireError, match=r"in a way this version cannot read|do not add up"):
        list(Decoder().feed(frame))


def test_a_frame_that_the_decoder_refuses_never_gets_here() -> None:
    # GIVEN what encode makes, WHEN it is decoded, THEN it is the message: the tests above speak the real protocol
    (frame,) = Decoder().feed(encode(counters(START_US)))
    assert frame.header["devices"] == counters(START_US)["devices"]


@pytest.mark.parametrize(
    ("segments", "requested_bytes"),
    [
        ([(0, 1 << 63), (1 << 63, (1 << 63) - 1)], 0),
        ([(index << 52, 1 << 52) for index in range(4095)], 0),
        ([(0, 1 << 40), (1, 1 << 40)], 0),
        ([(0, 1 << 40)], (1 << 64) - 1),
    ],
    ids=["larger than all memory", "larger together", "over each other", "asked for more than there is"],
)
def test_a_map_of_sizes_that_no_gpu_has_is_refused(segments: list[tuple[int, int]], requested_bytes: int) -> None:
    # GIVEN columns that agree with each other
    count = len(segments)
    sizes = array.array("Q", [size for _, size in segments])
    addresses = array.array("Q", [address for address, _ in segments])
    zeros = array.array("Q", [0] * count)
    columns = {
        "segment_address": addresses,
        "segment_total_bytes": sizes,
        **dict.fromkeys(("segment_stream", "segment_pool_a", "segment_pool_b"), zeros),
        **dict.fromkeys(("segment_is_small", "segment_is_expandable"), bytes(count)),
        "segment_first_block": array.array("I", range(count + 1)),
        "block_address": addresses,
        "block_bytes": sizes,
        "block_requested_bytes": array.array("Q", [requested_bytes] * count),
        "block_state": bytes(count),
    }
    office = Office()
    office.agent(1)

    # WHEN they are sent
    office.say(1, encode({"kind": "map", "device": 0, "time_unix_us": START_US, "at": "any"}, columns))

    # THEN their sender is told, and no figure is made of them
    assert office.closed[1].startswith("refused the connection of process 1: a map")
    (series,) = next(iter(office.jobs.by_id.values())).ranks[0].series.values()
    assert series.map is None
