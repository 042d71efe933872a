"""What the GPU's bar and the six figures say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dashboard.figures import cards
from vramscope.records import DeviceReading, DeviceStats, Mark, Timeline
from vramscope.units import GIB, MIB, MISSING

NOW_US = 1_790_000_000_000_000


def stats(
    *,
    nvml: DeviceReading | None = None,
    others: int | None = None,
    fit: Any = None,
    map_age_s: int = 0,
    **counters: int,
) -> DeviceStats:
    """Return statistics of an 80 GiB GPU with 61 GiB active of 72 reserved, and 5 GiB free."""
    known = {
        "active_bytes": 61 * GIB,
        "reserved_bytes": 72 * GIB,
        "reserved_peak_bytes": 74 * GIB,
        "inactive_split_bytes": 9 * GIB,
        "num_alloc_retries": 3,
        "num_ooms": 0,
        "device_free_bytes": 5 * GIB,
        "device_total_bytes": 80 * GIB,
    }
    return DeviceStats(
        "job", 0, 0, NOW_US, 7, {**known, **counters}, fit or {}, NOW_US - map_age_s * 1_000_000, {}, nvml, others
    )


def reading(used: int | None, **changes: Any) -> DeviceReading:
    return replace(DeviceReading("GPU-0", 0, "H100", NOW_US, 80 * GIB, used), **changes)


def minute(*split: float, marks: tuple[Mark, ...] = ()) -> Timeline:
    """Return the last minute with these peaks of the inactive split, spread evenly over it, the last of them now."""
    moments = NOW_US - np.linspace(60_000_000, 0, len(split)).astype(np.int64)
    return Timeline(moments, {}, {"inactive_split_bytes": np.array(split)}, 0, marks)


def text(figure: cards.Figure) -> str:
    return "; ".join(part for part, _ in figure.detail)


def figures(
    found: DeviceStats, history: Timeline | None = None, request_bytes: int | None = 2 * GIB
) -> dict[str, cards.Figure]:
    names = ("active", "reserved", "inactive split", "largest fit", "retries", "others")
    return dict(zip(names, cards.figures(found, history, request_bytes), strict=True))


def test_active_tells_the_share_and_what_is_free_on_the_gpu() -> None:
    found = figures(stats())["active"]
    assert (found.value, found.unit) == ("61.0", "GiB")
    assert text(found) == "of 80.0 GiB · 76 %; 5.00 GiB free on the GPU"
    assert found.bar == (("active", 61 / 80),)


def test_reserved_tells_its_peak_and_what_is_cached() -> None:
    found = figures(stats())["reserved"]
    assert text(found) == "peak 74.0 GiB; 11.0 GiB of it cached and free"


@pytest.mark.parametrize(
    ("before", "words", "tone"),
    [
        (7 * GIB, "▲ 2.00 GiB in 1 min", "bad"),
        (10 * GIB, "▼ 1.00 GiB in 1 min", "ok"),
        (9 * GIB - MIB, "steady in the last minute", ""),
    ],
)
def test_inactive_split_tells_its_ratio_and_its_trend(before: int, words: str, tone: str) -> None:
    # GIVEN a job whose steps raise the figure again and again, lately to nine GiB, and to another height a minute ago
    steps = [1.0, float(before), 1.0, float("nan"), 1.0, 12.0 * GIB, 1.0, 12.0 * GIB, 1.0, 9.0 * GIB, 1.0]
    # THEN the trend is that of the peaks, whatever the figure is at this moment
    found = figures(stats(), minute(*steps))["inactive split"]
    assert found.detail == (("12 % of reserved is stranded", ""), (words, tone))


def test_without_history_no_trend_is_claimed() -> None:
    assert text(figures(stats())["inactive split"]) == "12 % of reserved is stranded"
    for known in (minute(float("nan")), minute(float("nan"), float("nan"), 5.0 * GIB, 9.0 * GIB)):
        assert text(figures(stats(), known)["inactive split"]) == "12 % of reserved is stranded"


@pytest.mark.parametrize(
    ("fit", "request_bytes", "words", "tone"),
    [
        (3 * GIB, 2 * GIB, "a 2 GiB tensor fits", "ok"),
        (2 * GIB, 2 * GIB, "a 2 GiB tensor fits", "ok"),
        (2 * GIB - 1, 2 * GIB, "a 2 GiB tensor would fail", "bad"),
        (GIB, None, "write a size such as 2 GiB or 512 MiB", "warn"),
    ],
)
def test_the_largest_fit_answers_whether_a_tensor_fits(
    fit: int, request_bytes: int | None, words: str, tone: str
) -> None:
    from_map = {"largest_fit_bytes": fit, "largest_fit_way": "a cached block"}
    found = figures(stats(fit=from_map), None, request_bytes)["largest fit"]
    assert found.detail == (("in a cached block", ""), (words, tone))


def test_an_estimate_of_the_largest_fit_is_called_one() -> None:
    from_map = {"largest_fit_bytes": GIB, "largest_fit_way": "a new segment", "largest_fit_is_estimate": True}
    found = figures(stats(fit=from_map))["largest fit"]
    # AND it does not claim that more would fail, since it tells what fits at least
    assert found.detail == (("estimate: in a new segment", ""), ("a 2 GiB tensor may fail", "warn"))
    assert figures(stats(fit=from_map), request_bytes=GIB)["largest fit"].detail[1] == ("a 1 GiB tensor fits", "ok")


def test_a_fit_from_an_old_map_says_so_and_is_not_sure() -> None:
    from_map = {"largest_fit_bytes": GIB, "largest_fit_way": "a new segment"}
    found = figures(stats(fit=from_map, map_age_s=28))["largest fit"]
    assert found.detail == (("from a map 28 s old", ""), ("a 2 GiB tensor may fail", "warn"))
    fresh = figures(stats(fit=from_map, map_age_s=2))["largest fit"]
    assert fresh.detail == (("in a new segment", ""), ("a 2 GiB tensor would fail", "bad"))


def test_before_a_map_the_largest_fit_is_missing_not_zero() -> None:
    found = figures(stats())["largest fit"]
    assert found.value == MISSING
    assert text(found) == "not known: it takes a map and the driver's free bytes"


def test_retries_tell_the_last_and_the_ooms() -> None:
    retry = Mark(NOW_US - 18_000_000, 0, "retry", "allocation retry")
    assert text(figures(stats(), minute(marks=(retry,)))["retries"]) == "0 out of memory; last one 18 s ago"
    assert text(figures(stats(), minute())["retries"]) == "0 out of memory; none in the last minute"
    assert figures(stats(num_ooms=2))["retries"].detail[0] == ("2 out of memory", "bad")


def test_what_is_not_pytorchs_comes_from_nvml_less_all_ranks() -> None:
    found = figures(stats(nvml=reading(79 * GIB), others=4 * GIB))["others"]
    assert (found.value, found.unit) == ("3.00", "GiB")
    assert "estimate" in text(found)


def test_without_nvml_the_driver_is_asked_and_named() -> None:
    found = figures(stats())["others"]
    assert found.value == "3.00"
    assert text(found) == "estimate, cudaMemGetInfo; NVML has no reading"


def test_without_any_reading_the_figure_is_missing_with_its_reason() -> None:
    unread = reading(None, missing=("memory: Not Supported",))
    found = figures(replace(stats(nvml=unread), counters={"reserved_bytes": GIB}))["others"]
    assert (found.value, text(found)) == (MISSING, "memory: Not Supported")


def test_readings_of_different_moments_never_give_a_negative_figure() -> None:
    assert cards.others_bytes(stats(nvml=reading(70 * GIB))) == 0


def test_unknown_counters_are_missing_everywhere() -> None:
    for name, found in figures(replace(stats(), counters={})).items():
        assert found.value == MISSING, name


def test_zeros_of_cuda_malloc_async_are_not_shown_as_facts() -> None:
    found = cards.without_statistics(stats(active_bytes=0, reserved_bytes=0, num_alloc_retries=0))
    shown = figures(found)
    assert shown["active"].value == shown["reserved"].value == shown["retries"].value == MISSING
    # AND what the driver tells stays
    assert text(shown["active"]) == "5.00 GiB free on the GPU"


def test_the_parts_of_the_gpu_add_up_to_it() -> None:
    parts = cards.device_parts(stats(others=GIB))
    assert [part.name for part in parts] == [
        "active",
        "cached by PyTorch",
        "other ranks",
        "not PyTorch's",
        "free on the device",
    ]
    assert sum(part.size_bytes for part in parts) == 80 * GIB


def test_parts_that_are_not_known_are_left_out() -> None:
    parts = cards.device_parts(replace(stats(), counters={"active_bytes": GIB, "reserved_bytes": 2 * GIB}))
    assert [part.name for part in parts] == ["active", "cached by PyTorch"]


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("2 GiB", 2 * GIB), ("512m", 512 * MIB), ("1.5 gb", 1_500_000_000), ("100", 100), (" 7 KiB ", 7168)],
)
def test_sizes_are_read_as_people_write_them(written: str, size_bytes: int) -> None:
    assert cards.parse_size(written) == size_bytes


@pytest.mark.parametrize("written", ["", None, "two", "2 XiB", "-1 GiB", "1e9", "9" * 40])
def test_what_is_no_size_is_refused(written: str | None) -> None:
    assert cards.parse_size(written) is None
