"""The settings that a snapshot records of the job it was taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramscope.allocator.alloc_conf import parse_alloc_conf
from vramscope.allocator.rounding import DIVISION_BUCKETS
from vramscope.allocator.settings import Settings
from vramscope.errors import BadInputError

_U64 = 1 << 64


def recorded_settings(recorded: Mapping[str, object]) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of a snapshot's ``allocator_settings``, and what they leave open, one line each.

    What the text of the environment says counts less than the values that are recorded beside it, which torch reads from the
    options as they were used.
    """
    doubts = ["a limit that the program set itself (set_per_process_memory_fraction) is not recorded"]
    text = recorded.get("PYTORCH_CUDA_ALLOC_CONF")
    settings = Settings()
    if isinstance(text, str):
        try:
            settings = parse_alloc_conf(text)
        except BadInputError as error:
            doubts.append(f"the recorded {error}")
    else:
        doubts.append("the text of the settings is not recorded: sizes of segments assume the defaults")
    max_split, threshold = recorded.get("max_split_size"), recorded.get("garbage_collection_threshold")
    expandable, divisions = recorded.get("expandable_segments"), _divisions(recorded)
    if type(max_split) is int:
        settings = replace(settings, max_split_size_bytes=None if max_split == -1 else max_split % _U64)
    if isinstance(threshold, float):
        settings = replace(settings, garbage_collection_threshold=threshold)
    if isinstance(expandable, bool):
        settings = replace(settings, expandable_segments=expandable)
    if divisions is not None:
        settings = replace(settings, roundup_power2_divisions=divisions if any(divisions) else ())
    return settings, tuple(doubts)


def _divisions(recorded: Mapping[str, object]) -> tuple[int, ...] | None:
    found = recorded.get("roundup_power2_divisions")
    if not isinstance(found, Mapping):
        return None
    values = tuple(found.get(str(1 << bucket)) for bucket in range(DIVISION_BUCKETS))
    whole = tuple(value for value in values if type(value) is int and value >= 0)
    return whole if len(whole) == DIVISION_BUCKETS else None
