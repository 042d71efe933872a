"""The settings that a snapshot records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramscope.allocator import Allocator, Settings, parse_alloc_conf
from vramscope.allocator.recorded import recorded_settings
from vramscope.units import GIB, MIB


@pytest.mark.parametrize(
    "text",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.5",
        "max_split_size_mb:-1,large_segment_size_mb:32",
        "roundup_power2_divisions:[4:2,>:8],max_non_split_rounding_mb:64,max_split_size_mb:64",
    ],
)
def test_what_a_snapshot_records_is_read_again(text: str) -> None:
    settings = parse_alloc_conf(text)
    found, doubts = recorded_settings(Allocator(GIB, settings).snapshot()["allocator_settings"])
    assert replace(found, text=settings.text) == settings
    assert len(doubts) == 1


def test_values_count_more_than_the_text() -> None:
    found, _ = recorded_settings(
        {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": -1, "expandable_segments": True}
    )
    assert (found.max_split_size_bytes, found.expandable_segments) == (None, True)


def test_what_is_not_recorded_is_the_default_and_named() -> None:
    found, doubts = recorded_settings({"max_split_size": 128 * MIB})
    assert found == Settings(max_split_size_bytes=128 * MIB)
    assert any("not recorded: sizes of segments assume the defaults" in line for line in doubts)


def test_a_text_that_cannot_be_used_is_named() -> None:
    found, doubts = recorded_settings({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
    assert found == Settings()
    assert any("only the native allocator is simulated" in line for line in doubts)


def test_values_of_another_kind_are_left_out() -> None:
    strange = {"max_split_size": "many", "expandable_segments": 1, "roundup_power2_divisions": {"1": None}}
    assert recorded_settings(strange)[0] == Settings()
