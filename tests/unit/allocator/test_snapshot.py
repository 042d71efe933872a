"""What the allocator tells in PyTorch's own form: segments, traces, settings and counters."""

from __future__ import annotations

import pickle
from itertools import count
from pathlib import Path

import pytest

from vramscope.allocator import Allocator, TraceEntry, parse_alloc_conf
from vramscope.columns import check, from_segments
from vramscope.units import GIB, MIB

TRAIN = (("train.py", 88, "main"), ("model.py", 612, "forward"))
TRAIN_DICTS = [
    {"filename": "train.py", "line": 88, "name": "main"},
    {"filename": "model.py", "line": 612, "name": "forward"},
]
ORACLE = Path(__file__).parents[3].parent / "shared" / "oracle" / "snapshots" / "train.pickle"


def test_blocks_carry_the_frames_of_their_allocation_and_free_ones_carry_none() -> None:
    allocator = Allocator(GIB)
    allocator.malloc(5 * MIB, frames=TRAIN)
    allocator.free(allocator.malloc(5 * MIB, frames=(("other.py", 1, "f"),)))
    segment = allocator.segments()[0]
    assert segment["frames"] == TRAIN_DICTS
    assert [block["frames"] for block in segment["blocks"]] == [TRAIN_DICTS, []]


def test_a_snapshot_can_be_read_by_the_parser() -> None:
    allocator = Allocator(GIB, device=1)
    allocator.malloc(5 * MIB)
    found = from_segments(allocator.snapshot()["segments"], device=1)
    check(found)
    assert found.block_bytes.tolist() == [5 * MIB, 15 * MIB]


def test_the_trace_tells_each_event_with_its_own_size() -> None:
    # GIVEN an allocator whose clock ticks
    allocator = Allocator(GIB, clock=count(1000).__next__)
    # WHEN a block is allocated and freed, and the cache emptied
    allocator.free(allocator.malloc(3_000_001, frames=TRAIN))
    allocator.empty_cache()
    # THEN blocks tell the request, segments the real bytes
    [trace] = allocator.snapshot()["device_traces"]
    assert [(entry["action"], entry["size"], entry["time_us"]) for entry in trace] == [
        ("segment_alloc", 20 * MIB, 1000),
        ("alloc", 3_000_001, 1001),
        ("free_requested", 3_000_001, 1002),
        ("free_completed", 3_000_001, 1003),
        ("segment_free", 20 * MIB, 1004),
    ]
    assert all(entry["frames"] == TRAIN_DICTS for entry in trace)


def test_the_trace_is_a_ring_and_events_are_told_one_by_one() -> None:
    told: list[TraceEntry] = []
    allocator = Allocator(GIB, on_event=told.append, trace_max_entries=2)
    allocator.free(allocator.malloc(100))
    assert [entry.action for entry in told] == ["segment_alloc", "alloc", "free_requested", "free_completed"]
    [trace] = allocator.snapshot()["device_traces"]
    assert [entry["action"] for entry in trace] == ["free_requested", "free_completed"]


def test_traces_lie_at_the_index_of_their_device() -> None:
    allocator = Allocator(GIB, device=2)
    allocator.malloc(100)
    assert [len(trace) for trace in allocator.snapshot()["device_traces"]] == [0, 0, 2]


def test_settings_have_pytorchs_names_and_units() -> None:
    text = "max_split_size_mb:128,roundup_power2_divisions:[4:2],garbage_collection_threshold:0.8"
    found = Allocator(GIB, parse_alloc_conf(text)).snapshot()["allocator_settings"]
    assert found["PYTORCH_CUDA_ALLOC_CONF"] == text
    assert (found["max_split_size"], found["expandable_segments"]) == (128 * MIB, False)
    assert found["roundup_power2_divisions"]["1"] == 2
    assert Allocator(GIB).snapshot()["allocator_settings"]["max_split_size"] == -1


@pytest.mark.skipif(not ORACLE.is_file(), reason="the real allocator's snapshots are not beside the checkout")
def test_every_key_is_one_of_the_real_snapshots() -> None:
    # GIVEN a snapshot of the real allocator, and one of the simulated with every kind of part
    real = pickle.loads(ORACLE.read_bytes())
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(100, frames=TRAIN))
    found = allocator.snapshot()
    # THEN segments and blocks have the same keys, and settings and events no others
    assert found["segments"][0].keys() == real["segments"][0].keys()
    assert found["segments"][0]["blocks"][0].keys() == real["segments"][0]["blocks"][0].keys()
    assert found["device_traces"][0][0].keys() == real["device_traces"][0][0].keys()
    assert found["allocator_settings"].keys() <= real["allocator_settings"].keys()
    assert found.keys() <= real.keys()
