"""The state in PyTorch's own snapshot form: segments with their blocks, traces and settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramscope.allocator.blocks import Block, Frames, Segment
from vramscope.allocator.rounding import DIVISION_BUCKETS
from vramscope.allocator.settings import Settings
from vramscope.allocator.state import State, TraceEntry


class _FrameDicts:
    """Frames as PyTorch's dicts; one list for each stack, shared by all that have it, as in PyTorch's own."""

    def __init__(self) -> None:
        self._known: dict[Frames, list[dict[str, Any]]] = {}

    def __call__(self, frames: Frames) -> list[dict[str, Any]]:
        if frames not in self._known:
            self._known[frames] = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
        return self._known[frames]


def segment_dicts(state: State) -> list[dict[str, Any]]:
    """Return ``torch.cuda.memory_snapshot()``: one record for each segment or contiguous mapped range, by address."""
    as_dicts = _FrameDicts()
    segments = sorted(state.segments.values(), key=lambda segment: segment.address)
    return [
        _segment_dict(state.device, segment, blocks, as_dicts)
        for segment in segments
        for blocks in _mapped_ranges(segment)
    ]


def snapshot_dict(state: State) -> dict[str, Any]:
    """Return ``torch.cuda.memory._snapshot()``, with the traces of this device at its index."""
    as_dicts = _FrameDicts()
    traces: list[list[dict[str, Any]]] = [[] for _ in range(state.device)]
    traces.append([_trace_dict(entry, as_dicts) for entry in state.trace])
    return {
        "segments": segment_dicts(state),
        "device_traces": traces,
        "allocator_settings": _settings_dict(state.settings),
        "external_annotations": [],
    }


def _mapped_ranges(segment: Segment) -> Iterator[list[Block]]:
    blocks: list[Block] = []
    for block in segment.blocks():
        if block.mapped:
            blocks.append(block)
        elif blocks:
            yield blocks
            blocks = []
    if blocks:
        yield blocks


def _segment_dict(device: int, segment: Segment, blocks: list[Block], as_dicts: _FrameDicts) -> dict[str, Any]:
    active = [block for block in blocks if not block.is_idle]
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": sum(block.size_bytes for block in blocks),
        "allocated_size": sum(block.size_bytes for block in active if block.allocated),
        "active_size": sum(block.size_bytes for block in active),
        "requested_size": sum(block.requested_bytes for block in active),
        "stream": segment.stream,
        "segment_type": "small" if segment.pool.is_small else "large",
        "segment_pool_id": segment.pool.id,
        "is_expandable": segment.is_expandable,
        "frames": as_dicts(blocks[0].segment_frames),
        "blocks": [
            {
                "address": block.address,
                "size": block.size_bytes,
                "requested_size": block.requested_bytes,
                "state": _state_name(block),
                "frames": as_dicts(block.frames),
            }
            for block in blocks
        ],
    }


def _state_name(block: Block) -> str:
    if block.allocated:
        return "active_allocated"
    return "inactive" if block.is_idle else "active_pending_free"


def _trace_dict(entry: TraceEntry, as_dicts: _FrameDicts) -> dict[str, Any]:
    result: dict[str, Any] = {
        "action": entry.action,
        "device_free" if entry.action == "oom" else "addr": entry.address,
        "size": entry.size_bytes,
        "stream": entry.stream,
        "time_us": entry.time_us,
        "compile_context": "N/A",
        "user_metadata": "",
        "pool_id": entry.pool_id,
    }
    if entry.frames:
        result["frames"] = as_dicts(entry.frames)
    return result


def _settings_dict(settings: Settings) -> dict[str, Any]:
    """Return the options that are simulated, under the names and in the units of PyTorch's ``allocator_settings``."""
    divisions = settings.roundup_power2_divisions or (0,) * DIVISION_BUCKETS
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings.text,
        "max_split_size": settings.max_split_size,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "roundup_power2_divisions": {str(1 << bucket): count for bucket, count in enumerate(divisions)},
    }
