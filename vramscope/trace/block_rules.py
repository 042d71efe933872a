"""The rules by which the allocator made blocks, as the settings of a file and its final state tell them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vramscope.allocator.rounding import DIVISION_BUCKETS, MIN_BLOCK_BYTES, round_size
from vramscope.columns import U64
from vramscope.snapshot.columns import Settings


@dataclass(frozen=True)
class BlockRules:
    """``max_split_bytes`` None means that there is no limit; ``is_expandable`` None that it is not known, or changed on the way.

    ``notes`` are lines about what had to be assumed.
    """

    divisions: tuple[int, ...]
    max_split_bytes: int | None
    is_expandable: bool | None
    notes: tuple[str, ...] = field(default=())

    def rounded(self, requested_bytes: U64) -> U64:
        """Return each request as the allocator rounds it."""
        if max(self.divisions, default=0) <= 1:
            return rounded_to_least(requested_bytes)
        different, place = np.unique(requested_bytes, return_inverse=True)
        return np.array([round_size(size, self.divisions) for size in different.tolist()], np.uint64)[place]


def rounded_to_least(requested_bytes: U64) -> U64:
    """Return the least block that each request can have got, whatever the settings."""
    step = np.uint64(MIN_BLOCK_BYTES)
    rounded: U64 = np.maximum(step, (requested_bytes + (step - np.uint64(1))) // step * step)
    return rounded


def block_rules_of(settings: Settings, has_pieces: bool) -> BlockRules:
    """Return the rules that ``settings`` record, and the defaults for what they do not; ``has_pieces`` of expandable segments."""
    divisions, max_split = _divisions(settings), settings.get("max_split_size")
    expandable = settings.get("expandable_segments")
    is_recorded = divisions is not None and type(max_split) is int and type(expandable) is bool
    return BlockRules(
        divisions=divisions or (),
        max_split_bytes=max_split if type(max_split) is int and max_split >= 0 else None,
        is_expandable=None if has_pieces or expandable is True else False,
        notes=() if is_recorded else ("the allocator's settings are not recorded: block sizes assume the defaults",),
    )


def _divisions(settings: Settings) -> tuple[int, ...] | None:
    """Return the 16 of ``roundup_power2_divisions``, None where the file does not record them."""
    recorded = settings.get("roundup_power2_divisions")
    if not isinstance(recorded, dict):
        return None
    values = [recorded.get(str(1 << bucket)) for bucket in range(DIVISION_BUCKETS)]
    found = tuple(value for value in values if type(value) is int and value >= 0)
    return found if len(found) == DIVISION_BUCKETS else None
