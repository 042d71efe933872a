"""Counters, marks and maps as frames, from a source in memory."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.agent.fake_source import BASE, FakeSource, make_segment, make_stats
from vramscope.agent.sampler import Sampler
from vramscope.agent.source import DeviceDescription
from vramscope.agent.tensors import TensorRegistry
from vramscope.agent.vocabulary import COUNTERS
from vramscope.agent.wire import Decoder, Frame
from vramscope.columns import from_frame


def make_sampler(source: FakeSource) -> Sampler:
    found = Sampler(source, TensorRegistry())
    found.refresh()
    return found


def counters(sampler: Sampler) -> list[Frame]:
    return list(Decoder().feed(b"".join(sampler.counters(phase="timer", step=3, agent={"cost_ratio": 0.001}))))


def test_counters_are_the_allocators_own() -> None:
    # GIVEN
    stats = make_stats(reserved=64 << 20, retries=2)
    sampler = make_sampler(FakeSource(stats={0: stats}))

    # WHEN
    (frame,) = counters(sampler)

    # THEN
    (row,) = frame.header["devices"]
    assert (frame.kind, frame.header["step"], frame.header["phase"]) == ("counters", 3, "timer")
    assert set(row) == {"device", *COUNTERS}
    for name, path in COUNTERS.items():
        expected: Any = stats
        for key in path:
            expected = expected[key]
        if path:
            assert row[name] == expected, name
    assert (row["device_free_bytes"], row["device_total_bytes"]) == (5 << 30, 8 << 30)


def test_what_an_allocator_does_not_tell_is_null_and_never_0() -> None:
    # GIVEN cudaMallocAsync, whose statistics are empty
    source = FakeSource(stats={0: {}}, devices_seen=[DeviceDescription(0, "Fake", None, 8 << 30, "cudaMallocAsync")])

    # WHEN
    sampler = make_sampler(source)
    (frame,) = counters(sampler)

    # THEN only the driver's figures are there, and there is no map
    (row,) = frame.header["devices"]
    assert {name for name, value in row.items() if value is not None} == {
        "device",
        "device_free_bytes",
        "device_total_bytes",
    }
    assert sampler.mappable == []
    assert sampler.maps(at="any", step=None, request_ids={}).frames == []


def test_a_retry_and_an_oom_give_a_mark_once() -> None:
    # GIVEN a job that has had retries before it attached
    source = FakeSource(stats={0: make_stats(retries=5)})
    sampler = make_sampler(source)
    assert [frame.kind for frame in counters(sampler)] == ["counters"]

    # WHEN
    source.stats[0] = make_stats(retries=6, ooms=2)
    found = counters(sampler)

    # THEN
    assert [(frame.header["mark"], frame.header["label"], frame.header["device"]) for frame in found[1:]] == [
        ("retry", "allocation retry", 0),
        ("oom", "out of memory × 2", 0),
    ]
    assert [frame.kind for frame in counters(sampler)] == ["counters"]


def test_resetting_the_statistics_gives_no_mark() -> None:
    # GIVEN a job that calls reset_accumulated_memory_stats
    source = FakeSource(stats={0: make_stats(retries=6)})
    sampler = make_sampler(source)
    counters(sampler)

    # WHEN
    source.stats[0] = make_stats(retries=0)

    # THEN
    assert [frame.kind for frame in counters(sampler)] == ["counters"]


def test_one_snapshot_gives_a_frame_for_each_device_and_names_the_request() -> None:
    # GIVEN
    source = FakeSource(
        devices_seen=[DeviceDescription(number, "Fake", None, None, "native") for number in (0, 1)],
        found_segments=[make_segment(BASE, [512, 512]), make_segment(BASE, [1024, 512, 512], device=1)],
    )
    sampler = make_sampler(source)

    # WHEN
    taken = sampler.maps(at="step_end", step=9, request_ids={1: 77})
    first, second = Decoder().feed(b"".join(taken.frames))

    # THEN
    assert [(f.header["device"], f.header["request_id"]) for f in (first, second)] == [(0, None), (1, 77)]
    assert (first.header["at"], first.header["step"]) == ("step_end", 9)
    assert 0 < first.header["cost_us"] <= taken.cost_us


def test_a_snapshot_that_waits_counts_with_its_wall_time() -> None:
    # GIVEN a snapshot of 50 ms in which this thread does nothing, as when it waits for the allocator's lock
    sampler = make_sampler(FakeSource(snapshot_s=0.05))

    # WHEN
    taken = sampler.maps(at="any", step=None, request_ids={})

    # THEN
    assert taken.pause_us >= 50_000
    assert taken.cost_us >= taken.waited_us >= 45_000


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Leave the cyclic collector as it was, whatever a test does to it."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.parametrize("enabled", [True, False])
def test_no_cyclic_collection_starts_during_a_map_and_the_job_sees_its_own_state(
    thresholds: tuple[int, int, int], enabled: bool
) -> None:
    # GIVEN a source whose snapshot makes as many objects as would start some
    started: list[int] = []
    states: list[bool] = []

    class Watching(FakeSource):
        def segments(self) -> Any:
            before = gc.get_stats()[0]["collections"]
            kept = [[] for _ in range(50 * thresholds[0])]  # type: ignore[var-annotated]
            started.append(gc.get_stats()[0]["collections"] - before)
            states.append(gc.isenabled())
            return super().segments() if kept else []

    sampler = make_sampler(Watching())
    if not enabled:
        gc.disable()

    # WHEN
    sampler.maps(at="any", step=None, request_ids={})

    # THEN
    assert started == [0]
    assert states == [enabled]
    assert gc.isenabled() is enabled
    assert gc.get_threshold() == thresholds


def test_a_job_that_sets_the_cyclic_collector_during_a_map_has_its_way(thresholds: tuple[int, int, int]) -> None:
    # GIVEN a job with a thread that does so while a map is taken
    class Meanwhile(FakeSource):
        def segments(self) -> Any:
            gc.disable()
            gc.set_threshold(12_345)
            return super().segments()

    # WHEN
    make_sampler(Meanwhile()).maps(at="any", step=None, request_ids={})

    # THEN
    assert not gc.isenabled()
    assert gc.get_threshold()[0] == 12_345


class Weight:
    """As much of a parameter as its label needs."""

    shape, dtype, grad = (2, 3), "torch.bfloat16", None


class Model:
    """As much of a module as the registry needs."""

    def __init__(self) -> None:
        self.weight = Weight()

    def named_parameters(self) -> list[tuple[str, Weight]]:
        return [("weight", self.weight)]

    def named_buffers(self) -> list[tuple[str, Weight]]:
        return []


def test_named_tensors_travel_with_the_map() -> None:
    # GIVEN
    model, registry = Model(), TensorRegistry()
    registry.add(model)
    sampler = Sampler(FakeSource(spans={id(model.weight): (0, BASE, 12)}), registry)
    sampler.refresh()

    # WHEN
    (frame,) = Decoder().feed(sampler.maps(at="any", step=None, request_ids={}).frames[0])

    # THEN
    found = from_frame(frame)
    assert (found.tensor_address.tolist(), found.tensor_bytes.tolist()) == ([BASE], [12])
    assert found.tensor_labels == (("weight", "(2, 3)", "bfloat16"),)


def test_the_list_of_devices_is_announced_when_it_changes() -> None:
    # GIVEN a job that has not used CUDA
    source = FakeSource(is_ready=False)
    sampler = Sampler(source, TensorRegistry())
    assert sampler.refresh() is False
    assert sampler.devices == []

    # WHEN
    source.is_ready = True

    # THEN
    assert sampler.refresh() is True
    assert sampler.refresh() is False
    assert json.dumps([found._asdict() for found in sampler.devices])
