"""Turns PyTorch's segment list into the columns of ``map`` frames, as vramscope/columns.py reads them. Pure."""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from vramscope.agent.tensors import TensorColumns
from vramscope.agent.vocabulary import STATE_CODE

_MASK = 0xFFFF_FFFF_FFFF_FFFF


def columns_of_device(segments: Sequence[Mapping[str, Any]], device: int) -> dict[str, array.array[int] | bytes]:
    """Return the columns of one device, its segments sorted by address.

    One comprehension a column: measured, this takes half the time of one pass that fills all of them.
    Raises KeyError where a key of torch 2.1's format is missing, or a block's state is not known.
    """
    ours = sorted((s for s in segments if s["device"] == device), key=lambda s: int(s["address"]))
    blocks: list[Mapping[str, Any]] = [b for s in ours for b in s["blocks"]]
    pools = [s.get("segment_pool_id", (0, 0)) for s in ours]
    return {
        "segment_address": array.array("Q", [s["address"] for s in ours]),
        "segment_total_bytes": array.array("Q", [s["total_size"] for s in ours]),
        # Streams may be pointers that are printed as negative integers; the mask keeps their 64 bits.
        "segment_stream": array.array("Q", [s["stream"] & _MASK for s in ours]),
        "segment_pool_a": array.array("Q", [pool[0] & _MASK for pool in pools]),
        "segment_pool_b": array.array("Q", [pool[1] & _MASK for pool in pools]),
        "segment_is_small": bytes([s["segment_type"] == "small" for s in ours]),
        "segment_is_expandable": bytes([bool(s.get("is_expandable")) for s in ours]),
        "segment_first_block": array.array("I", accumulate((len(s["blocks"]) for s in ours), initial=0)),
        "block_address": array.array("Q", [b["address"] for b in blocks]),
        "block_bytes": array.array("Q", [b["size"] for b in blocks]),
        "block_requested_bytes": array.array("Q", [b["requested_size"] for b in blocks]),
        "block_state": bytes([STATE_CODE[b["state"]] for b in blocks]),
    }


def tensor_columns(named: TensorColumns | None) -> dict[str, array.array[int] | bytes]:
    """Return the columns of the tensors that could be named, none where there are none."""
    if named is None:
        return {}
    return {
        "tensor_address": named.address,
        "tensor_bytes": named.size_bytes,
        "tensor_category": named.category,
        "tensor_labels": named.labels_column(),
    }
