"""What the GPU's bar and the six figures say: from one device's statistics to values, sentences and shares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vramscope import metrics
from vramscope.errors import BadInputError
from vramscope.records import DeviceStats, Timeline
from vramscope.units import MISSING, format_bytes, format_ratio, parse_bytes, split_bytes

# A change below this share of the reserved bytes is called steady.
STEADY_RATIO = 0.005
# The trend compares the highest of a minute's first and last quarter: within each step the figure rises and falls.
MINUTE_US = 60_000_000
QUARTER_US = 15_000_000
# A map that is older than this against the counters is said to be.
STALE_MAP_US = 5_000_000
# vramscope.metrics' ways, as they read after the figure.
_WAYS = {
    metrics.CACHED_BLOCK: "in a cached block",
    metrics.NEW_SEGMENT: "in a new segment",
    metrics.AFTER_RELEASE: "by releasing the cache",
    metrics.MORE_OF_EXPANDABLE: "by mapping more memory",
}


@dataclass(frozen=True)
class Figure:
    """One card: the value and its unit, a line of (text, tone) parts, and a bar of (colour name, share of 1)."""

    value: str
    unit: str = ""
    detail: tuple[tuple[str, str], ...] = ()
    bar: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Part:
    """One part of the whole GPU: what it is called, its colour's name, and its bytes."""

    name: str
    colour: str
    size_bytes: int


def parse_size(text: str | None) -> int | None:
    """Return the bytes of a size as a user writes it, or None where the text is not one."""
    try:
        return parse_bytes(text or "")
    except BadInputError:
        return None


def no_figures() -> tuple[Figure, ...]:
    """Return six figures for a device of which nothing has arrived."""
    return (Figure(MISSING, "", (("nothing has arrived yet", ""),)),) * 6


def without_statistics(stats: DeviceStats) -> DeviceStats:
    """Return ``stats`` with what the driver tells alone: cudaMallocAsync reports zeros, which would read as facts."""
    own = {name: stats.counters.get(name) for name in ("device_free_bytes", "device_total_bytes")}
    return replace(stats, counters=own, from_map={})


def total_bytes(stats: DeviceStats) -> int | None:
    """Return the size of the GPU, as the driver or NVML tells it."""
    driver = stats.counters.get("device_total_bytes")
    return driver if driver is not None else (stats.nvml.total_bytes if stats.nvml else None)


def used_bytes(stats: DeviceStats) -> tuple[int, str] | None:
    """Return what is used on the whole device by anybody, and who says so: NVML, or else cudaMemGetInfo."""
    if stats.nvml and stats.nvml.used_bytes is not None:
        return stats.nvml.used_bytes, "NVML"
    total, free = stats.counters.get("device_total_bytes"), stats.counters.get("device_free_bytes")
    return None if total is None or free is None else (total - free, "cudaMemGetInfo")


def others_bytes(stats: DeviceStats) -> int | None:
    """Return the estimate of what is on the device and not reserved by this job's PyTorch.

    The readings are not of the same instant, so a small negative difference can occur; it is taken for nothing.
    """
    used, reserved = used_bytes(stats), stats.counters.get("reserved_bytes")
    if used is None or reserved is None:
        return None
    return max(0, used[0] - reserved - (stats.reserved_by_others_bytes or 0))


def free_bytes(stats: DeviceStats) -> int | None:
    """Return what is free on the device: its size less what is used."""
    used, total = used_bytes(stats), total_bytes(stats)
    return None if used is None or total is None else max(0, total - used[0])


def device_parts(stats: DeviceStats) -> list[Part]:
    """Return the parts of the whole GPU in drawing order; parts that are not known are left out."""
    reserved, active = stats.counters.get("reserved_bytes"), stats.counters.get("active_bytes")
    cached = None if reserved is None or active is None else max(0, reserved - active)
    found = (
        ("active", "active", active),
        ("cached by PyTorch", "inactive", cached),
        ("other ranks", "ranks", stats.reserved_by_others_bytes or None),
        ("not PyTorch's", "others", others_bytes(stats)),
        ("free on the device", "free", free_bytes(stats)),
    )
    return [Part(name, colour, size_bytes) for name, colour, size_bytes in found if size_bytes is not None]


def figures(stats: DeviceStats, minute: Timeline | None, request_bytes: int | None) -> tuple[Figure, ...]:
    """Return the six figures in the order of ``ids.CARDS``.

    ``minute`` is the last minute's history (None: not known); ``request_bytes`` the size that the user asks about.
    """
    return (
        _active(stats),
        _reserved(stats),
        _inactive_split(stats, minute),
        _largest_fit(stats, request_bytes),
        _retries(stats, minute),
        _others(stats),
    )


def _active(stats: DeviceStats) -> Figure:
    active, total = stats.counters.get("active_bytes"), total_bytes(stats)
    detail: list[tuple[str, str]] = []
    bar: tuple[tuple[str, float], ...] = ()
    if active is not None and total:
        detail.append((f"of {format_bytes(total)} · {format_ratio(active / total)}", ""))
        bar = (("active", active / total),)
    free = free_bytes(stats)
    if free is not None:
        detail.append((f"{format_bytes(free)} free on the GPU", "strong"))
    return Figure(*split_bytes(active), tuple(detail), bar)


def _reserved(stats: DeviceStats) -> Figure:
    reserved, active, total = (
        stats.counters.get("reserved_bytes"),
        stats.counters.get("active_bytes"),
        total_bytes(stats),
    )
    detail: list[tuple[str, str]] = []
    peak = stats.counters.get("reserved_peak_bytes")
    if peak is not None:
        detail.append((f"peak {format_bytes(peak)}", ""))
    bar: tuple[tuple[str, float], ...] = ()
    if reserved is not None and active is not None:
        detail.append((f"{format_bytes(max(0, reserved - active))} of it cached and free", ""))
        if total:
            bar = (("active", active / total), ("inactive", max(0, reserved - active) / total))
    return Figure(*split_bytes(reserved), tuple(detail), bar)


def _inactive_split(stats: DeviceStats, minute: Timeline | None) -> Figure:
    split, reserved = stats.counters.get("inactive_split_bytes"), stats.counters.get("reserved_bytes")
    detail: list[tuple[str, str]] = []
    bar: tuple[tuple[str, float], ...] = ()
    if split is not None and reserved:
        detail.append((f"{format_ratio(split / reserved)} of reserved is stranded", ""))
        bar = (("inactive", split / reserved),)
        detail += _trend(reserved, minute, stats.time_unix_us)
    return Figure(*split_bytes(split), tuple(detail), bar)


def _trend(reserved: int, minute: Timeline | None, now_us: int) -> list[tuple[str, str]]:
    """Return how the peaks changed; nothing where less than about a minute is known."""
    if minute is None or "inactive_split_bytes" not in minute.high:
        return []
    high, age_us = minute.high["inactive_split_bytes"], now_us - minute.time_unix_us
    known = ~np.isnan(high)
    first, last = high[known & (age_us >= MINUTE_US - QUARTER_US)], high[known & (age_us <= QUARTER_US)]
    if not len(first) or not len(last):
        return []
    change = int(last.max() - first.max())
    if abs(change) < STEADY_RATIO * reserved:
        return [("steady in the last minute", "")]
    arrow, tone = ("▲", "bad") if change > 0 else ("▼", "ok")
    return [(f"{arrow} {format_bytes(abs(change))} in 1 min", tone)]


def _largest_fit(stats: DeviceStats, request_bytes: int | None) -> Figure:
    fit = stats.from_map.get("largest_fit_bytes")
    if not isinstance(fit, int):
        return Figure(MISSING, "", (("not known: it takes a map and the driver's free bytes", ""),))
    is_estimate = bool(stats.from_map.get("largest_fit_is_estimate"))
    way = stats.from_map.get("largest_fit_way")
    words = [_WAYS.get(str(way), str(way))] if way else []
    age_us = 0 if stats.map_time_unix_us is None else stats.time_unix_us - stats.map_time_unix_us
    is_old = age_us > STALE_MAP_US
    if is_old:
        words = [f"from a map {age_us / 1e6:.0f} s old"]
    detail = [(("estimate: " if is_estimate else "") + word, "") for word in words]
    detail.append(fit_verdict(fit, request_bytes, is_sure=not is_estimate and not is_old))
    return Figure(*split_bytes(fit), tuple(detail))


def fit_verdict(fit_bytes: int, request_bytes: int | None, *, is_sure: bool) -> tuple[str, str]:
    """Return whether a tensor of ``request_bytes`` fits, in plain words, with its tone.

    An estimate is what fits at least: more may fit, so it cannot tell that a larger request fails. Nor can an old map.
    """
    if request_bytes is None:
        return "write a size such as 2 GiB or 512 MiB", "warn"
    wanted = format_bytes(request_bytes).replace(".00 ", " ")
    if request_bytes <= fit_bytes:
        return f"a {wanted} tensor fits", "ok"
    return (f"a {wanted} tensor would fail", "bad") if is_sure else (f"a {wanted} tensor may fail", "warn")


def _retries(stats: DeviceStats, minute: Timeline | None) -> Figure:
    retries, ooms = stats.counters.get("num_alloc_retries"), stats.counters.get("num_ooms")
    detail: list[tuple[str, str]] = []
    if ooms is not None:
        detail.append((f"{ooms:,} out of memory", "bad" if ooms else ""))
    if minute is not None:
        moments = [mark.time_unix_us for mark in minute.marks if mark.kind == "retry"]
        ago_s = (stats.time_unix_us - max(moments)) / 1e6 if moments else None
        detail.append(
            ("none in the last minute", "") if ago_s is None else (f"last one {max(0, ago_s):.0f} s ago", "warn")
        )
    return Figure(MISSING if retries is None else f"{retries:,}", "", tuple(detail))


def _others(stats: DeviceStats) -> Figure:
    others, used = others_bytes(stats), used_bytes(stats)
    reason = next(iter(stats.nvml.missing), "NVML does not tell") if stats.nvml else "NVML has no reading"
    if others is None or used is None:
        return Figure(MISSING, "", ((reason, ""),))
    if used[1] == "NVML":
        return Figure(*split_bytes(others), (("estimate: context, libraries, other programs", ""),))
    return Figure(*split_bytes(others), ((f"estimate, {used[1]}", ""), (reason, "")))
