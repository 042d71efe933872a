"""Segment records of all devices → a DeviceMap for each device, with the stacks of its blocks and the stated totals."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from vramscope.columns import INACTIVE, STATE_CODE, U64, DeviceMap, check
from vramscope.errors import BadInputError, WireError
from vramscope.snapshot.columns import I32, I64, MOST_BYTES, DeviceSnapshot, Events, exact_sum
from vramscope.snapshot.fields import Ignored, Table

SEGMENT_TYPES = {"large": 0, "small": 1}
TOTALS = ("allocated_size", "active_size", "requested_size")


@dataclass(frozen=True, eq=False)
class SegmentList:
    """Checked columns of a segment list, by device and address; ``*_frames`` are the lists of frames of each record."""

    device: I64
    segment: dict[str, npt.NDArray[Any]]
    segment_frames: list[Sequence[Any]]
    first_block: I64
    block: dict[str, npt.NDArray[Any]]
    block_frames: list[Sequence[Any]]
    stated: dict[str, U64]
    has_pools: bool


def read_segments(table: Table, ignored: Ignored) -> SegmentList:
    """Return the columns of a segment list. Raises BadInputError where a record lacks something, or has what cannot be."""
    order = np.lexsort((np.asarray(table.unsigned("address")), np.asarray(table.signed("device"))))
    segments = Table(table.kind, [table.records[place] for place in order.tolist()])
    block_lists = segments.lists("blocks")
    counts = np.fromiter(map(len, block_lists), np.int64, len(block_lists))
    first_block = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    blocks = Table("block", list(chain.from_iterable(block_lists)))
    segment = _segment_columns(segments)
    unrecorded = {"requested_size"} if segments.lacks("requested_size") or blocks.lacks("requested_size") else set()
    found = SegmentList(
        device=np.asarray(segments.signed("device")),
        segment=segment,
        segment_frames=segments.lists("frames"),
        first_block=first_block,
        block=_block_columns(blocks, segment["address"], first_block),
        block_frames=_block_frames(blocks),
        stated={key: np.asarray(segments.sizes(key)) for key in TOTALS if key not in unrecorded},
        has_pools=segments.has("segment_pool_id"),
    )
    _check_sums(found, table.kind)
    segments.count_unknown(ignored)
    blocks.count_unknown(ignored, known=("history",))
    return found


def _check_sums(found: SegmentList, kind: str) -> None:
    """Refuse sizes that no sum, no level and no picture could hold."""
    active = found.block["requested_bytes"][found.block["state"] != INACTIVE]
    columns = (found.segment["total_bytes"], found.block["bytes"], active, *found.stated.values())
    if max(map(exact_sum, columns)) > MOST_BYTES:
        raise BadInputError(f"its {kind}s have sizes beyond what any device has")


def device_snapshot(found: SegmentList, stacks: Sequence[I32], device: int, events: Events) -> DeviceSnapshot:
    """Return what ``found`` has of one device; ``stacks`` are those of all its segments and of all its blocks."""
    segment_stack, block_stack = stacks
    mine = np.flatnonzero(found.device == device)
    low, high = (int(mine[0]), int(mine[-1]) + 1) if len(mine) else (0, 0)
    first, last = int(found.first_block[low]), int(found.first_block[high])
    segment = {name: column[low:high] for name, column in found.segment.items()}
    block = {name: column[first:last] for name, column in found.block.items()}
    state = DeviceMap(
        device=device,
        time_unix_us=0 if events.time_us is None or not len(events) else int(events.time_us[-1]),
        segment_address=segment["address"],
        segment_total_bytes=segment["total_bytes"],
        segment_stream=segment["stream"],
        segment_pool_a=segment["pool_a"],
        segment_pool_b=segment["pool_b"],
        segment_is_small=segment["is_small"],
        segment_is_expandable=segment["is_expandable"],
        segment_first_block=(found.first_block[low : high + 1] - first).astype(np.uint32),
        block_address=block["address"],
        block_bytes=block["bytes"],
        block_requested_bytes=block["requested_bytes"],
        block_state=block["state"],
    )
    stated = {key: exact_sum(column[low:high]) for key, column in found.stated.items()}
    return DeviceSnapshot(
        device=device,
        state=state,
        segment_stack=segment_stack[low:high],
        block_stack=block_stack[first:last],
        events=events,
        stated_allocated_bytes=stated["allocated_size"],
        stated_active_bytes=stated["active_size"],
        stated_requested_bytes=stated.get("requested_size"),
        contradiction=_contradiction(state, stated),
    )


def _segment_columns(segments: Table) -> dict[str, npt.NDArray[Any]]:
    count = len(segments)
    pools = array("Q", repeat(0, 2 * count)) if segments.lacks("segment_pool_id") else segments.pairs("segment_pool_id")
    expandable = array("B", bytes(count)) if segments.lacks("is_expandable") else segments.flags("is_expandable")
    return {
        "address": np.asarray(segments.unsigned("address")),
        "total_bytes": np.asarray(segments.sizes("total_size")),
        "stream": np.asarray(segments.unsigned("stream")),
        "pool_a": np.asarray(pools)[::2].copy(),
        "pool_b": np.asarray(pools)[1::2].copy(),
        "is_small": np.asarray(segments.codes("segment_type", SEGMENT_TYPES)).astype(np.uint8),
        "is_expandable": np.asarray(expandable),
    }


def _block_columns(blocks: Table, segment_address: U64, first_block: I64) -> dict[str, npt.NDArray[Any]]:
    size = np.asarray(blocks.sizes("size"))
    if blocks.lacks("address"):
        # torch 2.0 gives none; blocks follow each other from the segment's start.
        before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(size, dtype=np.uint64)])
        starts = segment_address - before[first_block[:-1]]
        address = before[:-1] + np.repeat(starts, np.diff(first_block))
    else:
        address = np.asarray(blocks.unsigned("address"))
    requested = array("Q", repeat(0, len(blocks)))
    if not blocks.lacks("requested_size"):
        requested = blocks.sizes("requested_size")
    return {
        "address": address,
        "bytes": size,
        "requested_bytes": np.asarray(requested),
        "state": np.asarray(blocks.codes("state", STATE_CODE)).astype(np.uint8),
    }


def _block_frames(blocks: Table) -> list[Sequence[Any]]:
    """Return each block's frames; torch 2.0 has them in the newest entry of its ``history``."""
    if not blocks.lacks("frames"):
        return blocks.lists("frames")
    entries = Table("history entry", [history[0] for history in blocks.lists("history") if history])
    frames = iter(entries.lists("frames"))
    return [next(frames) if history else () for history in blocks.lists("history")]


def _contradiction(state: DeviceMap, stated: dict[str, int]) -> str | None:
    """Return in one line how segments and blocks contradict each other, or None."""
    try:
        check(state)
    except WireError as error:
        return str(error).replace("a map's", "the file's", 1)
    active = state.block_state != INACTIVE
    sums = {
        "allocated_size": exact_sum(state.block_bytes[state.block_state == STATE_CODE["active_allocated"]]),
        "active_size": exact_sum(state.block_bytes[active]),
        "requested_size": exact_sum(state.block_requested_bytes[active]),
    }
    wrong = [key for key, total in stated.items() if total != sums[key]]
    return f"the segments' {' and '.join(wrong)} are not the sums of their blocks" if wrong else None
