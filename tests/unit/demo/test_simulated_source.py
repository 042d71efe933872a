from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.unit.demo.conftest import Bench
from vramscope.agent.source import DeviceDescription, Source
from vramscope.columns import INACTIVE, check, from_segments
from vramscope.demo.mirror import Mirror
from vramscope.demo.model import SMALL, build
from vramscope.demo.simulated_source import SimulatedSource
from vramscope.demo.training import train_step
from vramscope.units import GIB


def source_over(mirror: Mirror) -> Source:
    return SimulatedSource(mirror, DeviceDescription(0, "Simulated GPU 1 GiB", "SIM-0", GIB, "simulated"))


def test_the_source_says_that_it_is_simulated(bench: Bench) -> None:
    source = source_over(bench.mirror)
    assert source.simulated
    assert source.ready()
    assert "simulated" in source.map_way
    assert any("simulated" in note for note in source.notes())
    assert [device.backend for device in source.devices()] == ["simulated"]


def test_maps_and_statistics_agree_with_each_other_during_training(bench: Bench) -> None:
    source = source_over(bench.mirror)
    with FakeTensorMode(), bench.mirror:
        model, optimizer = build(SMALL)
        kept = train_step(model, optimizer)
        found = from_segments(source.segments(), device=0)
        stats = source.memory_stats(0)
        memory = source.device_memory(0)
    # THEN the map is one that the collector accepts, and its sums are the statistics
    check(found)
    reserved = int(found.segment_total_bytes.sum())
    assert reserved == stats["reserved_bytes"]["all"]["current"]
    assert int(found.block_bytes[found.block_state != INACTIVE].sum()) == stats["active_bytes"]["all"]["current"]
    assert memory == (GIB - reserved, GIB)
    del kept


def test_a_parameter_lies_in_the_block_that_its_span_names(bench: Bench) -> None:
    source = source_over(bench.mirror)
    with FakeTensorMode(), bench.mirror:
        model, _ = build(SMALL)
    found = from_segments(source.segments(), device=0)
    active = dict(zip(found.block_address.tolist(), found.block_requested_bytes.tolist(), strict=True))
    for parameter in model.parameters():
        span = source.tensor_span(parameter)
        assert span is not None
        device, address, size_bytes = span
        assert device == 0
        assert active[address] == size_bytes == parameter.numel() * 2


def test_a_tensor_from_outside_has_no_span(bench: Bench) -> None:
    assert source_over(bench.mirror).tensor_span(torch.empty(4)) is None


@pytest.mark.parametrize("history", [True, False])
def test_a_block_has_its_stack_or_the_reason_why_not(bench: Bench, history: bool) -> None:
    mirror = Mirror(bench.allocator, record_stacks=history)
    source = source_over(mirror)
    with FakeTensorMode(), mirror:
        kept = torch.empty(100)
    span = source.tensor_span(kept)
    assert span is not None
    frames, reason = source.stack(0, span[1])
    if history:
        assert frames[0][0] == __file__
        assert reason is None
    else:
        assert frames == []
        assert reason is not None
        assert "history" in reason


def test_a_free_block_has_no_stack_and_that_is_not_put_on_the_history(bench: Bench) -> None:
    # GIVEN history, and a block whose tensor has gone
    source = source_over(bench.mirror)
    with FakeTensorMode(), bench.mirror:
        gone = torch.empty(100)
        span = source.tensor_span(gone)
        del gone
    assert span is not None
    # WHEN its stack is asked for
    frames, reason = source.stack(0, span[1])
    # THEN the reason is that it is free
    assert (frames, reason) == ([], "this block is free now, and a free block has no stack")


def test_an_address_without_a_block_has_no_stack(bench: Bench) -> None:
    frames, reason = source_over(bench.mirror).stack(0, 12345)
    assert frames == []
    assert reason == "there is no block at this address any more"


def test_a_dump_is_a_snapshot_in_pytorchs_own_form(bench: Bench, tmp_path: Path) -> None:
    source = source_over(bench.mirror)
    with FakeTensorMode(), bench.mirror:
        kept = [torch.empty(1000) for _ in range(3)]
    path = tmp_path / "snapshot.pickle"
    source.dump(str(path))
    snapshot = pickle.loads(path.read_bytes())
    assert snapshot["segments"] == source.segments()
    assert [entry["action"] for entry in snapshot["device_traces"][0]].count("alloc") == len(kept)
