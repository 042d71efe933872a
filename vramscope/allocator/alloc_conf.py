"""Reads PYTORCH_ALLOC_CONF as torch 2.14 reads it, its tolerance and its errors included."""

from __future__ import annotations

import re
from collections.abc import Callable

from vramscope.allocator.rounding import DIVISION_BUCKETS, LARGE_SEGMENT_BYTES, MIN_LARGE_ALLOC_BYTES
from vramscope.allocator.settings import Settings
from vramscope.errors import BadInputError
from vramscope.units import MIB, format_bytes

_U64 = 1 << 64
_MAX_REGISTER_THREADS = 128
_LEAST_DOUBLE = 2.0**-1022
_FLAGS_OF_CUDA = (
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_free_catch_all",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
)


def parse_alloc_conf(text: str) -> Settings:
    """Return the settings that ``text`` asks for. Raises BadInputError with one line in the cases in which PyTorch raises too.

    PyTorch checks less than one might think, and so does this: any one character of ``,:[]`` may stand where a colon or a comma is
    expected, "64MB" is 64, and -1 is the largest number there is. ``backend:cudaMallocAsync`` is refused because only the
    native allocator is simulated.
    """
    parser = _Parser(text)
    try:
        parser.read_large_segment_size()
        parser.read_all(parser.common, parser.of_cuda)
        parser.read_all(parser.of_cuda, parser.common)
    except ValueError as error:
        raise BadInputError(f"allocator settings {text!r}: {error}") from None
    return parser.settings()


class _Parser:
    """Tokens, a cursor and what was read so far. Each reader begins at the key's place and returns that of its last token."""

    def __init__(self, text: str) -> None:
        self._text = text
        # C's isspace(), so that no other white space is lost.
        self._tokens = [token for token in re.split(r"([,:\[\]])", re.sub(r"[ \t\n\v\f\r]", "", text)) if token]
        self._large_segment_bytes = LARGE_SEGMENT_BYTES
        self._sizes: dict[str, int] = {}
        self._flags: dict[str, bool] = {}
        self._threshold = 0.0
        self._fraction: float | None = None
        self._divisions: tuple[int, ...] = ()
        self.common: dict[str, Callable[[int], int]] = {
            "large_segment_size_mb": self._skip,
            "max_split_size_mb": self._segment_multiple,
            "max_non_split_rounding_mb": self._segment_multiple,
            "garbage_collection_threshold": self._garbage_collection_threshold,
            "roundup_power2_divisions": self._roundup_power2_divisions,
            "expandable_segments": self._flag,
            "pinned_use_background_threads": self._flag,
            "pinned_max_round_threshold_mb": self._number,
            "pinned_max_cached_size_mb": self._number,
        }
        self.of_cuda: dict[str, Callable[[int], int]] = {
            "backend": self._backend,
            **dict.fromkeys(_FLAGS_OF_CUDA, self._flag),
            "pinned_num_register_threads": self._register_threads,
            "pinned_reserve_segment_size_mb": self._reserve_segment_size,
            "per_process_memory_fraction": self._per_process_memory_fraction,
        }

    def settings(self) -> Settings:
        return Settings(
            expandable_segments=self._flags.get("expandable_segments", False),
            max_split_size_bytes=self._sizes.get("max_split_size_mb"),
            max_non_split_rounding_bytes=self._sizes.get("max_non_split_rounding_mb"),
            roundup_power2_divisions=self._divisions,
            garbage_collection_threshold=self._threshold,
            per_process_memory_fraction=self._fraction,
            large_segment_bytes=self._large_segment_bytes,
            throw_on_cudamalloc_oom=self._flags.get("throw_on_cudamalloc_oom", False),
            graph_capture_record_stream_reuse=self._flags.get("graph_capture_record_stream_reuse", False),
            text=self._text,
        )

    def read_large_segment_size(self) -> None:
        """Read this first, wherever it stands: other sizes are compared with it."""
        place = 0
        while place < len(self._tokens):
            if self._tokens[place] == "large_segment_size_mb":
                place += 2
                size_mb = self._whole(place)
                if size_mb <= MIN_LARGE_ALLOC_BYTES // MIB:
                    raise ValueError(f"large_segment_size_mb must be above {MIN_LARGE_ALLOC_BYTES // MIB}")
                self._large_segment_bytes = _mebibytes(size_mb)
            place += 1

    def read_all(self, readers: dict[str, Callable[[int], int]], skipped: dict[str, Callable[[int], int]]) -> None:
        """Read the keys that ``readers`` knows; those of ``skipped`` are read by another pass, as in PyTorch."""
        place = 0
        while place < len(self._tokens):
            key = self._tokens[place]
            if key not in readers and key not in skipped:
                raise ValueError(
                    f"{key!r} is not an option; known are {', '.join(sorted([*self.common, *self.of_cuda]))}"
                )
            # After a value one token is passed over, whatever it is.
            place = readers.get(key, self._skip)(place) + 2

    def _at(self, place: int) -> str:
        if place >= len(self._tokens):
            raise ValueError(f"something is missing after {self._tokens[-1]!r}")
        return self._tokens[place]

    def _whole(self, place: int) -> int:
        """Read as C's stoull does: digits in front are enough, and a negative number wraps around."""
        found = re.match(r"([+-]?)(\d+)", self._at(place), re.ASCII)
        if found is None or int(found[2]) >= _U64:
            raise ValueError(f"expected a whole number, not {self._at(place)!r}")
        return int(found[1] + found[2]) % _U64

    def _real(self, place: int) -> float:
        """Read as C's stod does."""
        text = self._at(place)
        found = re.match(_DECIMAL, text) if (hexadecimal := re.match(_HEXADECIMAL, text)) is None else hexadecimal
        if found is None:
            raise ValueError(f"expected a number, not {text!r}")
        value = float(found[0]) if hexadecimal is None else float.fromhex(found[0])
        is_zero = not re.search(r"[1-9]", re.split("[eE]", found[0])[0])
        if abs(value) < _LEAST_DOUBLE and not is_zero:
            raise ValueError(f"{text!r} is too small")
        return value

    def _skip(self, place: int) -> int:
        place += 2
        if self._at(place) == "[":
            while self._at(place) != "]":
                place += 1
        return place

    def _number(self, place: int) -> int:
        self._whole(place + 2)
        return place + 2

    def _flag(self, place: int) -> int:
        value = self._at(place + 2)
        if value not in ("True", "False"):
            raise ValueError(f"expected True or False, not {value!r}")
        self._flags[self._tokens[place]] = value == "True"
        return place + 2

    def _segment_multiple(self, place: int) -> int:
        name, size_bytes = self._tokens[place], _mebibytes(self._whole(place + 2))
        if size_bytes < self._large_segment_bytes:
            raise ValueError(
                f"{name} must be at least the large segment size, {format_bytes(self._large_segment_bytes)}"
            )
        self._sizes[name] = size_bytes
        return place + 2

    def _garbage_collection_threshold(self, place: int) -> int:
        self._threshold = self._real(place + 2)
        if not 0 < self._threshold < 1:
            raise ValueError("garbage_collection_threshold must lie between 0 and 1")
        return place + 2

    def _per_process_memory_fraction(self, place: int) -> int:
        self._fraction = self._real(place + 2)
        if not 0 <= self._fraction <= 1:
            raise ValueError("per_process_memory_fraction must lie in 0 to 1")
        return place + 2

    def _backend(self, place: int) -> int:
        if self._at(place + 2) != "native":
            raise ValueError(f"only the native allocator is simulated, not {self._at(place + 2)!r}")
        return place + 2

    def _register_threads(self, place: int) -> int:
        threads = self._whole(place + 2)
        if not _is_power_of_two(threads) or threads > _MAX_REGISTER_THREADS:
            raise ValueError(f"pinned_num_register_threads must be a power of 2 up to {_MAX_REGISTER_THREADS}")
        return place + 2

    def _reserve_segment_size(self, place: int) -> int:
        if not self._whole(place + 2):
            raise ValueError("pinned_reserve_segment_size_mb must be above 0")
        return place + 2

    def _roundup_power2_divisions(self, place: int) -> int:
        """Read one number for all buckets, or "[256:1,512:2,>:4]": sizes in MiB, lower buckets take the first, ">" the rest."""
        place += 2
        if self._at(place) != "[":
            division = self._whole(place)
            if not _is_power_of_two(division):
                raise ValueError(f"roundup_power2_divisions: {division} is not a power of 2")
            self._divisions = (division,) * DIVISION_BUCKETS
            return place
        divisions = [0] * DIVISION_BUCKETS
        first, last = True, 0
        place += 1
        while self._at(place) != "]":
            key, division = self._tokens[place], self._whole(place + 2)
            if division and not _is_power_of_two(division):
                raise ValueError(f"roundup_power2_divisions: {division} is not a power of 2")
            if key == ">":
                divisions[last + 1 :] = [division] * (DIVISION_BUCKETS - last - 1)
            else:
                last = self._bucket(place)
                divisions[:last] = [division] * last if first else divisions[:last]
                divisions[last] = division
                first = False
            place += 3 if self._at(place + 3) == "]" else 4
        self._divisions = tuple(divisions)
        return place

    def _bucket(self, place: int) -> int:
        size_mb = self._whole(place)
        if not _is_power_of_two(size_mb):
            raise ValueError(f"roundup_power2_divisions: {size_mb} is not a power of 2")
        return min(size_mb.bit_length() - 1, DIVISION_BUCKETS - 1)


_DECIMAL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)
_HEXADECIMAL = re.compile(r"[+-]?0x(?:[\da-f]+\.?[\da-f]*|\.[\da-f]+)(?:p[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def _is_power_of_two(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _mebibytes(size_mb: int) -> int:
    return min(size_mb, (_U64 - 1) // MIB) * MIB
