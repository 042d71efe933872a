"""A map on the wire is what columns.py makes of the same segment list."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.agent.fake_source import BASE, make_segment
from vramscope import columns, records
from vramscope.agent import vocabulary
from vramscope.agent.maps import columns_of_device
from vramscope.agent.wire import Decoder, encode

CASES = Path(__file__).parents[4] / "shared" / "cases"


def round_trip(segments: list[dict[str, Any]], device: int) -> columns.DeviceMap:
    frame = encode({"kind": "map", "device": device, "time_unix_us": 5}, columns_of_device(segments, device))
    (found,) = Decoder().feed(frame)
    return columns.from_frame(found)


def assert_equal(found: columns.DeviceMap, expected: columns.DeviceMap) -> None:
    assert (found.device, found.time_unix_us) == (expected.device, expected.time_unix_us)
    for name in columns.REQUIRED:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def random_segments(seed: int) -> list[dict[str, Any]]:
    source = random.Random(seed)
    found = []
    for place in range(60):
        sizes = [512 * source.randrange(1, 4000) for _ in range(source.randrange(1, 30))]
        found.append(
            make_segment(
                BASE + place * (1 << 32),
                sizes,
                device=source.randrange(2),
                states=[source.choice(vocabulary.STATES) for _ in sizes],
                stream=source.choice([0, 7, 0x5566_0000_0000, -3]),
                small=source.random() < 0.5,
                pool=source.choice([(0, 0), (0, 4), (1, 0)]),
                expandable=source.random() < 0.3,
            )
        )
    source.shuffle(found)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("device", [0, 1])
def test_what_arrives_is_what_torch_said(seed: int, device: int) -> None:
    segments = random_segments(seed)
    expected = columns.from_segments(segments, device=device, time_unix_us=5)
    assert expected.segment_count > 10
    assert_equal(round_trip(segments, device), expected)


def test_a_device_without_segments_has_an_empty_map() -> None:
    found = round_trip(random_segments(0), 7)
    assert (found.segment_count, found.block_count) == (0, 0)


def test_the_name_in_the_docstrings_for_pending_free_is_understood() -> None:
    segment = make_segment(BASE, [512, 512], states=["active_awaiting_free", "inactive"])
    assert round_trip([segment], 0).block_state.tolist() == [columns.ACTIVE_PENDING_FREE, columns.INACTIVE]


def test_an_unknown_state_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(KeyError):
        columns_of_device([make_segment(BASE, [512], states=["frozen"])], 0)


class RefusingUnpickler(pickle.Unpickler):
    """Reads plain data only: the files come from strangers."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def segments_of(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as stream:
        found = RefusingUnpickler(stream).load()
    segments: list[dict[str, Any]] = found["segments"] if isinstance(found, dict) else found
    return segments


@pytest.mark.parametrize(
    "name",
    [
        "01-three-gpus-expandable-oom-on-device-1",
        "05-6633-blocks-no-trace",
        "06-ten-streams-no-time",
        "07-empty",
        "09-private-pools-pending-free",
        "10-1722-segments-trace-starts-mid-run",
        "12-two-devices-expandable-no-trace",
    ],
)
def test_real_snapshots_arrive_as_they_were(name: str) -> None:
    # GIVEN
    file = CASES / "snapshots" / f"{name}.pickle"
    if not file.exists():
        pytest.skip("the folder of real snapshots is not beside this checkout")
    segments = segments_of(file)

    # THEN
    for device in {segment["device"] for segment in segments}:
        assert_equal(round_trip(segments, device), columns.from_segments(segments, device=device, time_unix_us=5))


def test_records_and_columns_use_the_agents_table() -> None:
    assert records.COUNTERS is vocabulary.COUNTERS
    assert columns.STATE_CODE is vocabulary.STATE_CODE
    assert {name: vocabulary.STATE_CODE[name] for name in vocabulary.STATES} == {
        "active_allocated": columns.ACTIVE_ALLOCATED,
        "active_pending_free": columns.ACTIVE_PENDING_FREE,
        "inactive": columns.INACTIVE,
    }
