"""PYTORCH_ALLOC_CONF: what is read, and the one line for what is refused."""

from __future__ import annotations

import pytest

from vramscope.allocator import Settings, parse_alloc_conf
from vramscope.allocator.settings import order_of
from vramscope.errors import BadInputError
from vramscope.units import MIB


def test_no_text_is_the_defaults() -> None:
    assert parse_alloc_conf("") == Settings()


def test_every_option_is_read() -> None:
    text = (
        "expandable_segments:True, throw_on_cudamalloc_oom:True,max_split_size_mb:128,max_non_split_rounding_mb:64,"
        "roundup_power2_divisions:[4:2,>:8],"
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,large_segment_size_mb:32,backend:native"
    )
    assert parse_alloc_conf(text) == Settings(
        expandable_segments=True,
        throw_on_cudamalloc_oom=True,
        max_split_size_bytes=128 * MIB,
        max_non_split_rounding_bytes=64 * MIB,
        roundup_power2_divisions=(2, 2, 2, *(8,) * 13),
        garbage_collection_threshold=0.8,
        per_process_memory_fraction=0.5,
        large_segment_bytes=32 * MIB,
        text=text,
    )


def test_options_that_move_no_block_are_accepted() -> None:
    text = "pinned_use_cuda_host_register:True,release_lock_on_cudamalloc:True"
    assert parse_alloc_conf(text) == Settings(text=text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_split_size", "'max_split_size' is not an option"),
        ("max_split_size_mb:", "something is missing after ':'"),
        ("max_split_sise_mb:64", "'max_split_sise_mb' is not an option"),
        ("max_split_size_mb:19", "at least the large segment size, 20.0 MiB"),
        ("large_segment_size_mb:64,max_split_size_mb:32", "at least the large segment size, 64.0 MiB"),
        ("max_non_split_rounding_mb:5", "max_non_split_rounding_mb must be at least"),
        ("max_split_size_mb:many", "expected a whole number, not 'many'"),
        ("large_segment_size_mb:10", "must be above 10"),
        ("expandable_segments:true", "expected True or False, not 'true'"),
        ("garbage_collection_threshold:1", "must lie between 0 and 1"),
        ("garbage_collection_threshold:nan", "must lie between 0 and 1"),
        ("per_process_memory_fraction:1.5", "must lie in 0 to 1"),
        ("per_process_memory_fraction:half", "expected a number"),
        ("roundup_power2_divisions:3", "3 is not a power of 2"),
        ("roundup_power2_divisions:[300:2]", "300 is not a power of 2"),
        ("roundup_power2_divisions:[256]", "something is missing after ']'"),
        ("roundup_power2_divisions:[256:2", "something is missing after '2'"),
        ("roundup_power2_divisions:0", "0 is not a power of 2"),
        ("garbage_collection_threshold:1e-400", "'1e-400' is too small"),
        ("max_split_size_mb:64,,", "',' is not an option"),
        ("backend:cudaMallocAsync", "only the native allocator is simulated"),
        ("pinned_num_register_threads:256", "a power of 2 up to 128"),
        ("pinned_reserve_segment_size_mb:0", "must be above 0"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_alloc_conf(text)
    assert why in str(caught.value)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size_mib"),
    [
        pytest.param("max_split_size_mb:64MB", 64, id="what follows the digits is not looked at"),
        pytest.param("max_split_size_mb,64", 64, id="nor is the colon"),
        pytest.param("max_split_size_mb:64:expandable_segments:False,", 64, id="nor the comma"),
        pytest.param(" max_split\t_size_mb : 6 4\n", 64, id="white space is nothing, anywhere"),
        pytest.param("max_split_size_mb:32,max_split_size_mb:64", 64, id="the last one counts"),
        pytest.param("max_split_size_mb:-1", (1 << 44) - 1, id="a negative number is the largest"),
    ],
)
def test_what_torch_tolerates_is_tolerated(text: str, size_mib: int) -> None:
    assert parse_alloc_conf(text).max_split_size_bytes == size_mib * MIB


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_split_size_mb:128,expandable_segments:True", "pytorch#193400"),
        ("garbage_collection_threshold:0.8", "does nothing without per_process_memory_fraction"),
        (
            "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9,expandable_segments:True",
            "does not free pages of expandable_segments",
        ),
        ("max_non_split_rounding_mb:64", "does nothing without max_split_size_mb"),
        ("graph_capture_record_stream_reuse:True", "is not simulated"),
    ],
)
def test_options_that_harm_each_other_are_named(text: str, why: str) -> None:
    [warning] = parse_alloc_conf(text).warnings
    assert why in warning


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_split_size_mb:128,max_non_split_rounding_mb:64",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
        "expandable_segments:True",
    ],
)
def test_others_are_not(text: str) -> None:
    assert parse_alloc_conf(text).warnings == ()


@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("2.1.2", "2.11"),
        ("2.11.0+cu130", "2.11"),
        ("2.12.1", "2.12"),
        ("2.13.0", "2.13"),
        ("2.15.0a0", "2.13"),
        ("3.0", "2.13"),
    ],
)
def test_the_order_of_free_blocks_follows_from_the_release(version: str, order: str) -> None:
    assert order_of(version) == order


@pytest.mark.parametrize(("fraction", "limit"), [(None, None), (1.0, None), (0.25, 25), (0.0, 0)])
def test_only_a_fraction_below_one_limits(fraction: float | None, limit: int | None) -> None:
    assert Settings(per_process_memory_fraction=fraction).limit_bytes(100) == limit
