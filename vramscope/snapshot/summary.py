"""A snapshot in figures: the totals of each device, its peaks and out-of-memories, and what the file cannot tell."""

from __future__ import annotations

from typing import Any

from vramscope.metrics import summarize
from vramscope.snapshot.columns import DeviceSnapshot, Snapshot, exact_sum
from vramscope.trace.columns import DeviceTrace, Peak, TracedSnapshot
from vramscope.trace.missing import missing_of


def summarize_snapshot(traced: TracedSnapshot) -> dict[str, Any]:
    """Return the figures as JSON can hold them. Bytes are exact sums; None is what the file does not tell, said in ``missing``."""
    snapshot = traced.snapshot
    missing = [*snapshot.notes]
    devices = [_device(snapshot, *both, missing) for both in zip(snapshot.devices, traced.traces, strict=True)]
    if not snapshot.settings:
        missing.append("the allocator's settings are not recorded")
    return {
        "container": snapshot.container,
        "torch_version_guess": snapshot.torch_version_guess,
        "devices": devices,
        "host": None if snapshot.host is None else _totals(snapshot.host),
        "stacks": len(snapshot.stacks),
        "annotations": len(snapshot.annotations),
        "settings": snapshot.settings,
        "ignored": snapshot.ignored,
        "missing": missing,
    }


def _device(snapshot: Snapshot, found: DeviceSnapshot, trace: DeviceTrace, missing: list[str]) -> dict[str, Any]:
    lines: list[str] = []
    figures = {
        "device": found.device,
        **_totals(found),
        "inactive_split_bytes": None,
        "peak_requested_bytes": _bytes(trace.peak_requested),
        "peak_active_bytes": _bytes(trace.peak_active),
        "oom": _ooms(snapshot, found),
    }
    if found.contradiction is not None:
        lines.append(f"{found.contradiction}: totals are what the segments state, and nothing else can be derived")
    else:
        expandable = bool(found.state.segment_is_expandable.any())
        figures["inactive_split_bytes"] = summarize(
            found.state, device_free_bytes=None, expandable=expandable
        ).inactive_split_bytes
        lines += missing_of(trace)
    if len(found.events) and found.events.time_us is None:
        lines.append("the events have no times")
    missing += [f"device {found.device}: {line}" for line in lines]
    return figures


def _totals(found: DeviceSnapshot) -> dict[str, int | None]:
    return {
        "reserved_bytes": exact_sum(found.state.segment_total_bytes),
        "allocated_bytes": found.stated_allocated_bytes,
        "active_bytes": found.stated_active_bytes,
        "requested_bytes": found.stated_requested_bytes,
        "segments": found.state.segment_count,
        "blocks": found.state.block_count,
        "events": len(found.events),
    }


def _bytes(peak: Peak | None) -> int | None:
    return None if peak is None else peak.peak_bytes


def _ooms(snapshot: Snapshot, found: DeviceSnapshot) -> list[dict[str, Any]]:
    """Return each out-of-memory: its request as rounded by the allocator, and what the driver had free."""
    events = found.events
    return [
        {
            "event": event,
            "time_us": None if events.time_us is None else int(events.time_us[event]),
            "rounded_request_bytes": int(events.size_bytes[event]),
            "device_free_bytes": int(free),
            "stream": int(events.stream[event]),
            "frames": [list(frame) for frame in snapshot.frames(int(events.stack[event]))],
        }
        for event, free in zip(events.oom_event.tolist(), events.oom_device_free_bytes.tolist(), strict=True)
    ]
