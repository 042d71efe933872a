"""How a request becomes a block size, a pool and a segment size (CUDACachingAllocator's round_size and get_allocation_size)."""

from __future__ import annotations

from collections.abc import Sequence

from vramscope.units import MIB

MIN_BLOCK_BYTES = 512
SMALL_LIMIT_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
MIN_LARGE_ALLOC_BYTES = 10 * MIB
ROUND_LARGE_BYTES = 2 * MIB

# roundup_power2_divisions has one entry for each power of two from 1 MiB to 32 GiB.
DIVISION_BUCKETS = 16


def round_up(size_bytes: int, step_bytes: int) -> int:
    """Return the next multiple of ``step_bytes`` at or above ``size_bytes``."""
    return -(-size_bytes // step_bytes) * step_bytes


def round_size(request_bytes: int, divisions: Sequence[int] = ()) -> int:
    """Return the block size for a request; ``divisions`` are the 16 of roundup_power2_divisions, or none."""
    if request_bytes < MIN_BLOCK_BYTES:
        return MIN_BLOCK_BYTES
    if divisions:
        bucket = min(max(request_bytes.bit_length() - MIB.bit_length(), 0), DIVISION_BUCKETS - 1)
        division = divisions[bucket]
        if division > 1 and request_bytes > MIN_BLOCK_BYTES * division:
            return _round_to_division(request_bytes, division)
    return round_up(request_bytes, MIN_BLOCK_BYTES)


def _round_to_division(request_bytes: int, division: int) -> int:
    """Return the next of the ``division`` steps into which the space between two powers of two is cut."""
    power_bytes = 1 << (request_bytes.bit_length() - 1)
    return round_up(request_bytes, power_bytes // division)


def largest_request(block_bytes: int, divisions: Sequence[int] = ()) -> int:
    """Return the largest request that is rounded to no more than ``block_bytes``, or 0."""
    if block_bytes < MIN_BLOCK_BYTES:
        return 0
    step_bytes = MIN_BLOCK_BYTES
    if divisions:
        bucket = min(max(block_bytes.bit_length() - MIB.bit_length(), 0), DIVISION_BUCKETS - 1)
        division = divisions[bucket]
        if division > 1 and block_bytes > MIN_BLOCK_BYTES * division:
            step_bytes = max(step_bytes, (1 << (block_bytes.bit_length() - 1)) // division)
    return block_bytes // step_bytes * step_bytes


def segment_size(block_bytes: int, large_segment_bytes: int = LARGE_SEGMENT_BYTES) -> int:
    """Return what is asked of cudaMalloc for a rounded block of ``block_bytes``."""
    if block_bytes <= SMALL_LIMIT_BYTES:
        return SMALL_SEGMENT_BYTES
    if block_bytes < MIN_LARGE_ALLOC_BYTES:
        return large_segment_bytes
    return round_up(block_bytes, ROUND_LARGE_BYTES)
