"""The allocator's options, and the text of PYTORCH_ALLOC_CONF that sets them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vramscope.allocator.rounding import DIVISION_BUCKETS, LARGE_SEGMENT_BYTES, MIN_LARGE_ALLOC_BYTES
from vramscope.errors import BadInputError
from vramscope.units import MIB, format_bytes


@dataclass(frozen=True)
class Settings:
    """The options of torch 2.14's native allocator that decide where memory goes, with its defaults.

    ``max_split_size_bytes`` None is no limit; ``max_non_split_rounding_bytes`` None is the large segment size. ``order`` names the
    first release whose order of free blocks is used ("2.11" stands for all before 2.12); nothing else of older releases is
    simulated, and only "2.13" was compared with the real allocator. ``text`` is what was parsed.
    """

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    max_non_split_rounding_bytes: int | None = None
    roundup_power2_divisions: tuple[int, ...] = ()
    garbage_collection_threshold: float = 0.0
    per_process_memory_fraction: float | None = None
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    order: str = "2.13"
    text: str = ""

    def is_oversize(self, block_bytes: int) -> bool:
        """Return whether blocks of this size are never split."""
        return self.max_split_size_bytes is not None and block_bytes >= self.max_split_size_bytes

    def limit_bytes(self, capacity_bytes: int) -> int | None:
        """Return how much may be reserved under the memory fraction, or None where there is no such limit."""
        fraction = self.per_process_memory_fraction
        return None if fraction is None or fraction >= 1 else int(fraction * capacity_bytes)


def parse_alloc_conf(text: str) -> Settings:
    """Return the settings that ``text`` asks for. Raises BadInputError with one line where PyTorch would refuse it too."""
    fields: dict[str, Any] = {"text": text}
    for key, value in _pairs(text):
        if key in _IGNORED:
            continue
        if key not in _OPTIONS:
            raise _bad(text, f"{key!r} is not an option that is simulated; known are {', '.join(_OPTIONS)}")
        name, read = _OPTIONS[key]
        try:
            fields[name] = read(value)
        except ValueError as error:
            raise _bad(text, f"{key}: {error}") from None
    fields.pop("backend", None)
    settings = Settings(**fields)
    _check_sizes(settings)
    return settings


def _check_sizes(settings: Settings) -> None:
    """The sizes that depend on the large segment size are checked once all options are read, in whatever order they came."""
    large = settings.large_segment_bytes
    for name, size_bytes in (
        ("max_split_size_mb", settings.max_split_size_bytes),
        ("max_non_split_rounding_mb", settings.max_non_split_rounding_bytes),
    ):
        if size_bytes is not None and size_bytes < large:
            raise _bad(settings.text, f"{name} must be at least the large segment size, {format_bytes(large)}")


def _bad(text: str, why: str) -> BadInputError:
    return BadInputError(f"allocator settings {text!r}: {why}")


def _pairs(text: str) -> list[tuple[str, str]]:
    """Split "key:value,key:[a:b,c:d]" at the commas that are not inside brackets."""
    pairs = []
    for part in filter(None, re.split(r",(?![^\[]*\])", re.sub(r"\s", "", text))):
        key, colon, value = part.partition(":")
        if not colon or not key or not value:
            raise _bad(text, f"{part!r} is not key:value")
        pairs.append((key, value))
    return pairs


def _boolean(value: str) -> bool:
    if value not in ("True", "False"):
        raise ValueError(f"expected True or False, not {value!r}")
    return value == "True"


def _whole(value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"expected a whole number, not {value!r}")
    return int(value)


def _mebibytes(value: str) -> int:
    return _whole(value) * MIB


def _large_segment_bytes(value: str) -> int:
    if _mebibytes(value) <= MIN_LARGE_ALLOC_BYTES:
        raise ValueError(f"must be above {MIN_LARGE_ALLOC_BYTES // MIB}")
    return _mebibytes(value)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"expected a number, not {value!r}") from None


def _threshold(value: str) -> float:
    if not 0 < _number(value) < 1:
        raise ValueError("must lie between 0 and 1")
    return _number(value)


def _fraction(value: str) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError("must lie in 0 to 1")
    return _number(value)


def _backend(value: str) -> str:
    if value != "native":
        raise ValueError(f"only the native allocator is simulated, not {value!r}")
    return value


def _power_of_two(value: str, *, zero: bool) -> int:
    number = _whole(value)
    if number & (number - 1) or (number == 0 and not zero):
        raise ValueError(f"{number} is not a power of 2")
    return number


def _divisions(value: str) -> tuple[int, ...]:
    """Read one number for all buckets, or "[256:1,512:2,>:4]": sizes in MiB, lower buckets take the first, ">" the rest."""
    if not value.startswith("["):
        return (_power_of_two(value, zero=True),) * DIVISION_BUCKETS
    divisions = [0] * DIVISION_BUCKETS
    last = -1
    for entry in value.strip("[]").split(","):
        size, colon, division_text = entry.partition(":")
        if not colon:
            raise ValueError(f"{entry!r} is not size:divisions")
        division = _power_of_two(division_text, zero=True)
        if size == ">":
            divisions[last + 1 :] = [division] * (DIVISION_BUCKETS - last - 1)
            continue
        bucket = min(_power_of_two(size, zero=False).bit_length() - 1, DIVISION_BUCKETS - 1)
        if last < 0:
            divisions[:bucket] = [division] * bucket
        divisions[bucket] = division
        last = bucket
    return tuple(divisions)


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "expandable_segments": ("expandable_segments", _boolean),
    "max_split_size_mb": ("max_split_size_bytes", _mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding_bytes", _mebibytes),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "garbage_collection_threshold": ("garbage_collection_threshold", _threshold),
    "per_process_memory_fraction": ("per_process_memory_fraction", _fraction),
    "large_segment_size_mb": ("large_segment_bytes", _large_segment_bytes),
    "backend": ("backend", _backend),
}

# Options that move no block: locks, and the allocator of pinned host memory.
_IGNORED = (
    "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
)
